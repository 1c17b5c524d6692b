/* What the key/value cache holds: a word that devices, kernels and options share. Constants. */
#ifndef ENGINE_DEVICE_KV_TYPE_H
#define ENGINE_DEVICE_KV_TYPE_H

enum kv_type { KV_F32, KV_F16, KV_Q8_0 };

#endif
