# For scripts that take another Debian from where this host takes its own. They bring `say` and
# `fail`, which ends them. No address is part of the repository.
# shellcheck shell=bash

isolated() { unshare --mount --pid --fork --kill-child --propagation private "$@"; }

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
