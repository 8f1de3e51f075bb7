# shellcheck shell=bash
# Everything that a cluster or a person has otherwise: edit here, once. sbatch_files/submit reads it
# before a job is submitted, and each job reads it again. What the environment has already stays.

MY_USER="${MY_USER:-$(id -un)}"           # $MY_USER in #SBATCH lines: sbatch expands nothing itself
LOCKSTEP="${LOCKSTEP:-$PWD/build/release/bin/lockstep}"
LOCKSTEP_CONFIG="${LOCKSTEP_CONFIG:-examples/demo.toml}"   # of scripts that are given none

# Read by sbatch itself (man sbatch, INPUT ENVIRONMENT VARIABLES).
# export SBATCH_ACCOUNT=my_project
# export SBATCH_PARTITION=normal

# A container for the tasks, where the cluster's srun knows --environment: a name under ~/.edf, or a
# file. sbatch_files/environment.toml is an example.
LOCKSTEP_ENVIRONMENT="${LOCKSTEP_ENVIRONMENT:-}"

# Workers of a node; empty: one a GPU, or one where there is none.
NPROC_PER_NODE="${NPROC_PER_NODE:-}"
# More words for every `lockstep launch`.
LOCKSTEP_OVERRIDES="${LOCKSTEP_OVERRIDES:-}"
