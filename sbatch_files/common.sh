# shellcheck shell=bash
# What the scripts of this folder share, and what `lockstep submit` writes into its own. Sourced.
#
#   launch ARGUMENT…     trains, on all nodes of the job: the words of `lockstep launch`
#   lockstep ARGUMENT…   any other command, once, on the first node
#
# Statuses of launch: 0 done, 64 wrong config, 70 bug, 75 run it again to resume, 93 do not.
set -u
: "${LOCKSTEP:?the program}" "${MAX_LAUNCHES:=4}" "${MIN_NODES:=1}"

# scontrol never tells of --no-kill, so the agents hear of it from here.
if grep -Eq '^#SBATCH.* --no-kill( |$)' "$0"; then export LOCKSTEP_SLURM_NO_KILL=1; fi

# At its end Slurm sends TERM to this shell as well. A trap lets it wait for srun, whose tasks save.
trap ':' TERM

# Threads that libraries start; the workers' own count is training.threads, a part of the run.
workers="${NPROC_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}"
threads=$((${SLURM_CPUS_PER_TASK:-1} / ${workers%%,*}))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))

# On the node, perhaps in a container: host memory from the nodes that have CPUs. (Where GPUs'
# memory is a NUMA node too, the kernel would put host memory there.)
# shellcheck disable=SC2016
readonly kOnNode='
cpus="$(cat /sys/devices/system/node/has_cpu 2>/dev/null)"
if [ -n "$cpus" ] && numactl --membind="$cpus" true 2>/dev/null; then
  exec numactl --membind="$cpus" "$@"
fi
exec "$@"'

# run_step NODES TASKS COMMAND…: so many tasks on each node. A node or a task that is lost takes
# nothing with it.
run_step() {
  local nodes="$1" tasks="$2" cpus
  cpus=$((${SLURM_CPUS_PER_TASK:-1} / tasks))
  shift 2
  srun --no-kill --kill-on-bad-exit=0 --wait=0 --mpi=none --open-mode=append \
    --nodes="$nodes" --ntasks="$((nodes * tasks))" --ntasks-per-node="$tasks" \
    --cpus-per-task="$((cpus > 0 ? cpus : 1))" \
    ${LOCKSTEP_ENVIRONMENT:+"--environment=$LOCKSTEP_ENVIRONMENT"} \
    bash -c "$kOnNode" lockstep "$@"
}

lockstep() { run_step 1 1 "$LOCKSTEP" "$@"; }

# On one node an agent restarts its workers; when it is lost itself, the next one is started here,
# inside the allocation. On several nodes srun starts the ranks, and each start is a generation.
launch() {
  local nodes status=0 start words=("$@" --launcher.grace_seconds 100)
  if [[ -n "${NPROC_PER_NODE:-}" ]]; then words+=(--nproc-per-node "$NPROC_PER_NODE"); fi
  # shellcheck disable=SC2206  # words on purpose
  words+=(${LOCKSTEP_OVERRIDES:-})
  for ((start = 1; start <= MAX_LAUNCHES; ++start)); do
    # After a node was lost, what sbatch said about the allocation is stale.
    nodes="$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%D 2>/dev/null)"
    nodes="${nodes:-$SLURM_JOB_NUM_NODES}"
    if ((nodes < MIN_NODES)); then
      echo "$nodes nodes are left, fewer than $MIN_NODES" >&2
      return 75
    elif ((SLURM_JOB_NUM_NODES == 1)); then
      run_step 1 1 "$LOCKSTEP" launch "${words[@]}"
    else
      SLURM_RESTART_COUNT="$((${SLURM_RESTART_COUNT:-0} * MAX_LAUNCHES + start))" \
        run_step "$nodes" "${workers%%,*}" "$LOCKSTEP" train "${words[@]}"
    fi
    status=$?
    case "$status" in
      0 | 64 | 70 | 75 | 93) break ;;
    esac
    echo "launch $start of $MAX_LAUNCHES ended with status $status" >&2
  done
  return "$status"
}
