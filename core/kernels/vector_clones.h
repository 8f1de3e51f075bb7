// LOCKSTEP_VECTOR_CLONES: compile the function for AVX-512, AVX2 and the baseline, and pick at
// load time. Contraction is off everywhere, so the versions give the same bits. The portable form
// is the function itself.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LOCKSTEP_VECTOR_CLONES
#endif
