# For scripts that take another Debian from where this host takes its own. They bring `say` and
# `fail`, which ends them. No address is part of the repository.
# shellcheck shell=bash

isolated() { unshare --mount --pid --fork --kill-child --propagation private "$@"; }

# check_root_host <folder> <GiB> <commands…>: that root file systems can be made in the folder.
check_root_host() {
  local folder="$1" least_gib="$2" command missing="" free_gib
  for command in "${@:3}" unshare chroot apt-get; do
    command -v "$command" >/dev/null || missing+=" $command"
  done
  if [[ -n "$missing" ]]; then fail "these programs are not installed:$missing"; fi
  if ((EUID != 0)); then fail "run this as root (sudo)"; fi
  isolated true || fail "cannot create mount and process namespaces on this machine"
  mkdir -p "$folder"
  free_gib=$(($(df -Pk "$folder" | awk 'NR == 2 {print $4}') / 1024 / 1024))
  if [[ ! -e "$folder/etc/debian_version" ]] && ((free_gib < least_gib)); then
    fail "$folder needs $least_gib GiB free, but has $free_gib GiB"
  fi
}

# The first of the host's mirrors that has the suite.
mirror_of() {
  local address found="" probe
  probe="$(mktemp -d)"
  # shellcheck disable=SC2016  # apt expands it
  while read -r address; do
    if /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file \
      "${address%/}/dists/$1/Release" "$probe/Release" >"$probe/log" 2>&1; then
      found="$address"
      break
    fi
  done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u)
  rm -rf "$probe"
  if [[ -z "$found" ]]; then fail "none of this host's apt sources has the suite $1"; fi
  echo "$found"
}

# make_root <suite> <folder> <packages>: a root file system by debootstrap; packages: "a,b".
# A second call uses it again.
make_root() {
  local suite="$1" root="$2" mirror
  if [[ -e "$root/etc/lockstep_suite" ]]; then return 0; fi
  mirror="$(mirror_of "$suite")"
  say "making $suite in $root"
  isolated debootstrap --variant=minbase --include="$3" "$suite" "$root" "$mirror" \
    >"$root.log" 2>&1 || fail "debootstrap failed; see $root.log"
  echo "$suite" >"$root/etc/lockstep_suite"
}

# carry_settings <root file system>: how the host reaches the world.
carry_settings() {
  local file
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    if [[ -e "$file" ]]; then cp --dereference "$file" "$1$file"; fi
  done
  apt-config dump | grep '^Acquire::' >"$1/etc/apt/apt.conf.d/99host" || true
}

# make_user <root file system> <home>: the user `user`.
make_user() {
  if ! grep -q '^user:' "$1/etc/passwd"; then
    isolated chroot "$1" useradd --create-home --home-dir "$2" user
  fi
}

# put_checkout <repository> <folder>: what is committed, without what was built before; LibTorch and
# the tests' Python stay.
put_checkout() {
  local fresh="$2.new"
  rm -rf "$fresh"
  git clone --quiet --no-hardlinks "$1" "$fresh"
  if [[ -d "$2/.deps" ]]; then mv "$2/.deps" "$fresh/.deps"; fi
  rm -rf "$2"
  mv "$fresh" "$2"
  say "checking $(git -C "$1" describe --always); what is not committed is left out"
}

# inside <root> <user> <home> <command>: in the root file system and this folder of it, with its own
# /proc and /dev/shm. BOUND_FOLDERS: folders of the host that lie there under the same names.
inside() {
  # shellcheck disable=SC2016  # expanded by the inner shell
  isolated bash -euo pipefail -c '
    mount --bind "$1" "$1"  # a root that is a mount can have namespaces of its own: Slurm, chaos
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/dev/shm"
    for folder in ${BOUND_FOLDERS:-}; do
      mkdir -p "$1$folder"
      mount --rbind "$folder" "$1$folder"
    done
    exec env -u LOCKSTEP_TORCH -u Torch_DIR -u CCACHE_DIR HOME="$3" LC_ALL=C.UTF-8 \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      chroot --userspec="$2" "$1" bash -euo pipefail -c "cd && $4"' - "$@"
}
