# shellcheck shell=bash
# What the scripts of this folder share, and what `lockstep submit` writes into its own. Sourced.
#
#   launch ARGUMENT…     trains, on all nodes of the job: the words of `lockstep launch`
#   lockstep ARGUMENT…   any other command, once, on the first node
#
# Statuses of launch: 0 done, 64 wrong config, 70 bug, 71 out of memory, 74 disk full or file too
# large, 75 run it again to resume, 77 an audit found wrong bits (leave the named node out), 93 do
# not run it again. Any other one: MAX_LAUNCHES launches ended with none of these.
set -u
launches=0
: "${LOCKSTEP:?the program}" "${MAX_LAUNCHES:=4}" "${MIN_NODES:=1}"

# scontrol never tells of --no-kill, so the agents hear of it from here: what sbatch took from the
# environment, else the last word of this script's header, values in quotes left out.
no_kill="${SBATCH_NO_KILL:+--no-kill=$SBATCH_NO_KILL}"
: "${no_kill:="$(sed -En -e '/^[[:space:]]*[^#[:space:]]/q' -e '/^#SBATCH/!d' \
  -e 's/"(\\.|[^"\])*"//g' -e "s/'[^']*'//g" -e 's/([^#])#.*/\1/' \
  -e 's/.*[[:space:]](-k|--no-kill)(=[a-z]+)?([[:space:]].*)?$/\1\2/p' "$0" | tail -n 1)"}"
case "$no_kill" in
  -k | --no-kill | --no-kill=set) export LOCKSTEP_SLURM_NO_KILL=1 ;;
  ?*) export LOCKSTEP_SLURM_NO_KILL=0 ;;
esac

# At its end Slurm sends TERM to this shell as well. A trap lets it wait for srun, whose tasks save.
trap ':' TERM

# What a task of a step may use: the CPUs that the job asked for by task, else all that it has on
# the node: without a word srun would bind the agent and all its workers to one.
step_cpus=(--cpu-bind=none)
if [[ -n "${SLURM_CPUS_PER_TASK:-}" ]]; then step_cpus=(--cpus-per-task="$SLURM_CPUS_PER_TASK"); fi

# Threads that libraries start; the workers' own count is training.threads, a part of the run.
workers="${NPROC_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}"
workers="${workers%%,*}"
cpus="${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-$workers}}"
threads=$((cpus / workers))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))
if ((threads < 1)); then
  echo "a node has $cpus CPUs for $workers workers; request more with --cpus-per-task" >&2
fi

# Of each step. The batch script stays outside, where Slurm's commands are.
container=()
if [[ -n "${LOCKSTEP_ENVIRONMENT:-}" ]]; then
  container+=(--environment="$LOCKSTEP_ENVIRONMENT")
fi
if [[ -n "${LOCKSTEP_CONTAINER_IMAGE:-}" ]]; then
  container+=(--container-image="$LOCKSTEP_CONTAINER_IMAGE" --container-workdir="$PWD"
    --container-mounts="${LOCKSTEP_CONTAINER_MOUNTS:-$PWD:$PWD}")
fi

# On the node, where its job is staged: the programs and their libraries come from the pack
# ($LOCKSTEP_PACK) onto its own disk, into a folder of this job and node that nobody else can enter.
# Who uses the folder holds a lock on it, which the kernel takes back from those that are killed:
# the next job here removes what they left. A folder from before the last boot is not used: perhaps
# it never reached the disk whole. Where anything fails the programs of the shared folder do, too.
#   stage   sets `staged` to the folder with bin/ and lib/; else a line says why
# shellcheck disable=SC2016
readonly kStage='
staged="" start="${TMPDIR:-/tmp}/lockstep-stage.$UID." node="${SLURMD_NODENAME:-$HOSTNAME}"
mine="$start$SLURM_JOB_ID.$node"
say() { echo "$node: $*" >&2; }
# What is half removed has no longer the name of what is whole.
remove_folder() {
  local part
  for part in "$1"/*; do mv "$part" "$part.partial"; done 2>/dev/null
  rm -rf "$1"
}
remove_mine() { (trap "" HUP INT TERM USR1 && remove_folder "$mine"); }
is_own_folder() { [[ -d "$1" && ! -L "$1" && -O "$1" ]]; }
is_pack() { [[ "$(sha256sum <"$1")" == "$LOCKSTEP_PACK_SHA256 "* ]]; }
remove_left() {
  local left held
  find "${start%/*}" -maxdepth 1 -name "${start##*/}*.tar" -type f -user "$UID" -mmin +60 -delete
  for left in "$start"*."$node"; do
    if [[ "$left" == "$mine" ]] || ! is_own_folder "$left"; then continue; fi
    exec {held}<"$left" || continue
    if flock --nonblock "$held"; then remove_folder "$left"; fi
    exec {held}<&-
  done
} 2>/dev/null
lock_mine() {
  local try lock
  for try in 1 2 3; do
    mkdir -m 700 "$mine" 2>/dev/null
    if ! is_own_folder "$mine"; then
      say "cannot create $mine, or another user owns it"
      return 1
    fi
    if ! { exec {lock}<"$mine" && flock --timeout 60 "$lock"; }; then
      say "cannot lock $mine"
      rmdir "$mine" 2>/dev/null
      return 1
    fi
    # Else whoever had the lock has removed the folder.
    [[ "/proc/self/fd/$lock" -ef "$mine" ]] && return
    exec {lock}<&-
  done
  return 1
}
unpack() {
  local pack="$mine/pack.tar"
  rm -rf "${mine:?}"/*
  if [[ -f "$LOCKSTEP_PACK_SENT" && ! -L "$LOCKSTEP_PACK_SENT" && -O "$LOCKSTEP_PACK_SENT" ]]; then
    mv "$LOCKSTEP_PACK_SENT" "$pack"
  fi
  if [[ ! -f "$pack" ]] || ! is_pack "$pack"; then
    say "sbcast sent no complete pack to this node; reading $LOCKSTEP_PACK"
    cp "$LOCKSTEP_PACK" "$pack" || return
    if ! is_pack "$pack"; then
      say "$LOCKSTEP_PACK is damaged; remove it, and the next job makes a new one"
      return 1
    fi
  fi
  mkdir "$1.partial" && tar -xmf "$pack" -C "$1.partial" && rm "$pack" && mv "$1.partial" "$1"
}
stage() {
  local folder
  remove_left
  if lock_mine; then
    folder="$mine/$LOCKSTEP_PACK_SHA256.$(</proc/sys/kernel/random/boot_id)"
    if { [[ -d "$folder" ]] || unpack "$folder"; } &&
      "$folder/bin/lockstep" --version >/dev/null &&
      "$folder/bin/lockstep-worker" --version >/dev/null; then
      staged="$folder"
    else
      remove_mine
    fi
  fi
  rm -f "$LOCKSTEP_PACK_SENT" 2>/dev/null
  if [[ -z "$staged" ]]; then say "staging failed; using the programs of the shared folder"; fi
}
'

# On the node, perhaps in a container: host memory from the nodes that have CPUs. (Where GPUs'
# memory is a NUMA node too, the kernel would put host memory there.)
# srun ends with the greatest status of its tasks: 1, of an agent that was killed, hides no other.
# shellcheck disable=SC2016
readonly kOnNode='
trap stopped=1 HUP INT TERM USR1
stopped=""
if [ -n "${LOCKSTEP_PACK:-}" ]; then
  stage
  if [ -n "$stopped" ]; then
    if [ -n "$staged" ]; then remove_mine; fi
    exit 75
  fi
fi
if [ -n "$staged" ]; then
  export LOCKSTEP_ENTRY="${LOCKSTEP_ENTRY:-$(type -P "$1")}"
  export LOCKSTEP_WORKER="$staged/bin/lockstep-worker"
  unset LOCKSTEP_GPU_WORKER LOCKSTEP_NO_WORKER
  if [ -e "$staged/lib/libtorch_cuda.so" ]; then export LOCKSTEP_GPU_WORKER="$LOCKSTEP_WORKER"; fi
  set -- "$staged/bin/lockstep" "${@:2}"
fi
bind=() cpus="$(cat /sys/devices/system/node/has_cpu 2>/dev/null)"
if [ -n "$cpus" ] && numactl --membind="$cpus" true 2>/dev/null; then
  bind=(numactl --membind="$cpus")
fi
"${bind[@]}" "$@"
status=$?
if [ -n "$staged" ]; then remove_mine; fi
exit "$((status < 128 ? status : 1))"
'

# run_step NODES COMMAND…: one task a node. A node or a task that is lost takes nothing with it.
# ASK_HERE: on this host, within a minute.
run_step() {
  local nodes="$1" here
  here=(--nodelist="${SLURMD_NODENAME:-}" --overlap --immediate=60 --time=1)
  shift
  srun ${ASK_HERE:+"${here[@]}"} --no-kill --kill-on-bad-exit=0 --wait=0 --mpi=none \
    --open-mode=append --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
    "${step_cpus[@]}" ${container[@]+"${container[@]}"} \
    bash -c "$kStage$kOnNode" lockstep "$@"
}

readonly kSendSeconds=600
pack="" pack_sha256="" pack_sent=""

# Where LOCKSTEP_STAGE names a folder that all nodes see: the pack is there, made, if it was not.
make_pack() {
  local said
  if ((${#container[@]})); then
    echo "nothing is staged, because the programs are in the container image" >&2
    return
  fi
  if ! said="$(command "$LOCKSTEP" stage "$LOCKSTEP_STAGE")"; then
    echo "staging failed; using the programs of the shared folder" >&2
    return
  fi
  pack_sha256="${said%% *}" pack="${said#* }"
}

# Before each start, as each removes what it was sent. sbcast passes the pack on from node to node,
# under a name that is new: it follows no link that somebody else has put there.
send_pack() {
  pack_sent="${TMPDIR:-/tmp}/lockstep-stage.$UID.$SLURM_JOB_ID.$RANDOM$RANDOM.tar"
  timeout "$kSendSeconds" sbcast "$pack" "$pack_sent" ||
    echo "sbcast ended with status $?; nodes without the pack will read $pack" >&2
}

lockstep() { run_step 1 "$LOCKSTEP" "$@"; }

# end_of LAUNCH STATUS WORD…: how a launch ended whose srun ended with STATUS, the greatest of its
# tasks: perhaps that of a node that was dismissed or cut off, while the others went on. What the
# run itself said counts. `again`: nobody spoke for it any more, so nobody saw a reason to end.
end_of() {
  local launch="$1" status="$2" said
  shift 2
  said="$(ASK_HERE=1 run_step 1 "$LOCKSTEP" status --end-of "$launch" "$@" 2>/dev/null |
    grep -Eo '^(none|[0-9]+)$' | tail -n 1)"
  case "$said:$status" in
    none:70 | none:75) echo again ;;
    none:* | :*) echo "$status" ;;
    *) echo "$said" ;;
  esac
}

# A status from here on is Slurm's own error, in its low byte: srun could not start the step. It is
# 233 where the slurmd of a node does not answer. (Below, from 128 on, a signal ended a task.)
readonly kNotStarted=160
# The pauses before the next launches then. Together they are longer than SlurmdTimeout, 300 s where
# the site says nothing else: by then Slurm has taken a dead node out of a --no-kill job.
readonly kPausesSeconds=(15 60 240)

# An agent a node. They make up for lost workers, agents and nodes themselves; when none of them is
# left, the next ones are started here, inside the allocation. (When the run was done before one of
# them was killed, the next ones see that and end.)
launch() {
  local nodes job="$SLURM_JOB_ID" status=0 end start pause words=("$@" --launcher.grace_seconds 100)
  # The number alone may mean every task of the array.
  if [[ -n "${SLURM_ARRAY_TASK_ID:-}" ]]; then job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; fi
  if [[ -n "${NPROC_PER_NODE:-}" ]]; then words+=(--nproc-per-node "$NPROC_PER_NODE"); fi
  # shellcheck disable=SC2206  # words on purpose
  words+=(${LOCKSTEP_OVERRIDES:-})
  if [[ -n "${LOCKSTEP_STAGE:-}" ]]; then make_pack; fi
  for ((start = 1; start <= MAX_LAUNCHES; ++start)); do
    # After a node was lost, what sbatch said about the allocation is stale.
    nodes="$(squeue --noheader --jobs="$job" --format=%D 2>/dev/null)"
    nodes="${nodes:-$SLURM_JOB_NUM_NODES}"
    if ((nodes < MIN_NODES)); then
      echo "$nodes nodes are left, but $MIN_NODES are needed (MIN_NODES)" >&2
      return 75
    fi
    export LOCKSTEP_LAUNCH="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.$((++launches))"
    if [[ -n "$pack" ]]; then send_pack; fi
    LOCKSTEP_PACK="$pack" LOCKSTEP_PACK_SHA256="$pack_sha256" LOCKSTEP_PACK_SENT="$pack_sent" \
      run_step "$nodes" "$LOCKSTEP" launch --nnodes "$MIN_NODES:$nodes" "${words[@]}"
    status=$?
    ((status == 0)) && break
    end="$(end_of "$LOCKSTEP_LAUNCH" "$status" "${words[@]}")"
    if [[ "$end" != again ]]; then status="$end"; fi
    case "$end" in
      0 | 64 | 70 | 71 | 74 | 75 | 77 | 93) break ;;
    esac
    if ((status < kNotStarted)); then
      echo "launch $start of $MAX_LAUNCHES ended with status $status" >&2
      continue
    fi
    echo "launch $start of $MAX_LAUNCHES: srun could not start the agents (status $status)" >&2
    ((start < MAX_LAUNCHES)) || break
    pause="${kPausesSeconds[start - 1]:-${kPausesSeconds[-1]}}"
    echo "the next launch starts in $pause s" >&2
    sleep "$pause"
  done
  return "$status"
}
