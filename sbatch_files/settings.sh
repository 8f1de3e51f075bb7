# shellcheck shell=bash
# Everything that a cluster or a person has otherwise: edit here, once. sbatch_files/submit reads it
# before a job is submitted, and each job reads it again. What the environment has already stays.

MY_USER="${MY_USER:-$(id -un)}"           # $MY_USER in #SBATCH lines: sbatch expands nothing itself
LOCKSTEP_CONFIG="${LOCKSTEP_CONFIG:-examples/demo.toml}"   # of scripts that are given none

# Read by sbatch itself (man sbatch, INPUT ENVIRONMENT VARIABLES).
# export SBATCH_ACCOUNT=my_project
# export SBATCH_PARTITION=normal

# A container for the tasks: docs/CONTAINERS.md. Where srun knows --environment, a name under
# ~/.edf, or a file: sbatch_files/environment.toml is an example.
LOCKSTEP_ENVIRONMENT="${LOCKSTEP_ENVIRONMENT:-}"
# Where it has pyxis (--container-image): an image, and the folders that the run needs, as
# FROM:TO,… (the folder of submission, when this says nothing).
LOCKSTEP_CONTAINER_IMAGE="${LOCKSTEP_CONTAINER_IMAGE:-}"
LOCKSTEP_CONTAINER_MOUNTS="${LOCKSTEP_CONTAINER_MOUNTS:-}"

# The program: LOCKSTEP, else the one on PATH, else the bundle, build or Python environment that
# this file is a part of. It must be there on the nodes as well; an image has its own.
lockstep_program() {
  local tree found
  tree="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
  if [[ -n "${LOCKSTEP_CONTAINER_IMAGE:-}" ]] || type -P lockstep; then return; fi
  for found in "$tree"/{,build/cuda/,build/release/,../../../../../}bin/lockstep; do
    if [[ -x "$found" ]]; then realpath -s "$found" && return; fi
  done
}
LOCKSTEP="${LOCKSTEP:-$(lockstep_program)}"
LOCKSTEP="${LOCKSTEP:-lockstep}"

# Workers of a node; empty: one a GPU, or one where there is none.
NPROC_PER_NODE="${NPROC_PER_NODE:-}"
# A folder that all nodes see, for the pack of programs and libraries that each node unpacks on its
# own disk (TMPDIR) and trains with; empty: those of LOCKSTEP are used where they are.
LOCKSTEP_STAGE="${LOCKSTEP_STAGE:-}"
# More words for every `lockstep launch`.
LOCKSTEP_OVERRIDES="${LOCKSTEP_OVERRIDES:-}"
