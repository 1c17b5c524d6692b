/* Element types of the key/value cache, shared by devices, kernels and options. Constants. */
#ifndef ENGINE_DEVICE_KV_TYPE_H
#define ENGINE_DEVICE_KV_TYPE_H

#include <assert.h>
#include <stddef.h>

enum kv_type { KV_F32, KV_F16, KV_Q8_0 };

#define KV_Q8_0_BLOCK 32 /* elements of a block: an F16 scale and int8 values */
#define KV_Q8_0_BYTES 34 /* bytes of one */

/* Bytes of n elements; for KV_Q8_0 whole blocks count. */
static inline size_t kv_type_bytes(enum kv_type type, int n)
{
    assert(n >= 0);
    return type == KV_F32   ? (size_t)n * 4
           : type == KV_F16 ? (size_t)n * 2
                            : (size_t)(n / KV_Q8_0_BLOCK) * KV_Q8_0_BYTES;
}

#endif
