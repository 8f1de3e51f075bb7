# shellcheck shell=bash
# What the scripts of this folder share, and what `lockstep submit` writes into its own. Sourced.
#
#   launch ARGUMENT…     trains, on all nodes of the job: the words of `lockstep launch`
#   lockstep ARGUMENT…   any other command, once, on the first node
#
# Statuses of launch: 0 done, 64 wrong config, 70 bug, 71 out of memory, 74 disk full or file too
# large, 75 run it again to resume, 93 do not. Any other one: MAX_LAUNCHES launches came to none of
# these.
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
  echo "$cpus CPUs for $workers workers of a node: ask for more (--cpus-per-task)" >&2
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

# On the node, perhaps in a container: host memory from the nodes that have CPUs. (Where GPUs'
# memory is a NUMA node too, the kernel would put host memory there.)
# srun ends with the greatest status of its tasks: 1, of an agent that was killed, hides no other.
# shellcheck disable=SC2016
readonly kOnNode='
trap : HUP INT TERM USR1
bind=() cpus="$(cat /sys/devices/system/node/has_cpu 2>/dev/null)"
if [ -n "$cpus" ] && numactl --membind="$cpus" true 2>/dev/null; then
  bind=(numactl --membind="$cpus")
fi
"${bind[@]}" "$@"
status=$?
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
    bash -c "$kOnNode" lockstep "$@"
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
  for ((start = 1; start <= MAX_LAUNCHES; ++start)); do
    # After a node was lost, what sbatch said about the allocation is stale.
    nodes="$(squeue --noheader --jobs="$job" --format=%D 2>/dev/null)"
    nodes="${nodes:-$SLURM_JOB_NUM_NODES}"
    if ((nodes < MIN_NODES)); then
      echo "$nodes nodes are left, fewer than $MIN_NODES" >&2
      return 75
    fi
    export LOCKSTEP_LAUNCH="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}.$((++launches))"
    run_step "$nodes" "$LOCKSTEP" launch --nnodes "$MIN_NODES:$nodes" "${words[@]}"
    status=$?
    ((status == 0)) && break
    end="$(end_of "$LOCKSTEP_LAUNCH" "$status" "${words[@]}")"
    if [[ "$end" != again ]]; then status="$end"; fi
    case "$end" in
      0 | 64 | 70 | 71 | 74 | 75 | 93) break ;;
    esac
    if ((status < kNotStarted)); then
      echo "launch $start of $MAX_LAUNCHES ended with status $status" >&2
      continue
    fi
    echo "launch $start of $MAX_LAUNCHES: srun could not start the agents, status $status" >&2
    ((start < MAX_LAUNCHES)) || break
    pause="${kPausesSeconds[start - 1]:-${kPausesSeconds[-1]}}"
    echo "the next launch follows in $pause s" >&2
    sleep "$pause"
  done
  return "$status"
}
