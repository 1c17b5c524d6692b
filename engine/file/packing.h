/* The packing of a Hugging Face checkpoint's matrices: quantization_config of config.json. Pure;
 * any thread. */
#ifndef ENGINE_FILE_PACKING_H
#define ENGINE_FILE_PACKING_H

#include <jansson.h>
#include <stdbool.h>

enum packing_kind {
    PACKING_NONE,
    PACKING_MXFP4, /* gpt-oss: transformers, integrations/mxfp4.py */
    PACKING_GPTQ,  /* AutoGPTQ, nn_modules/qlinear/qlinear_cuda_old.py */
    PACKING_AWQ,   /* AutoAWQ, modules/linear/gemm.py */
    /* compressed-tensors, compressors/mxfp4 */
    PACKING_MXFP4_ROWS,
    PACKING_WORDS, /* compressed-tensors, compressors/pack_quantized */
    PACKING_ROWS,  /* ik_llama.cpp's GGUF types with one scale a row: row_scaled.h */
    PACKING_FP8    /* transformers, integrations/finegrained_fp8.py; compressed-tensors */
};

struct packing {
    enum packing_kind kind;
    char method[96];  /* as in the config, "gptq"; empty: not packed */
    char refused[96]; /* an unsupported setting, "bits 3"; empty: none */
    int bits;         /* of an integer: 4 or 8 */
    int group;        /* columns per scale; 0: not given, or a whole row */
    bool varied;      /* some modules have other group sizes */
    bool zeros_whole; /* GPTQ: zero points are stored directly (gptq_v2), not less one */
    /* each matrix has zero points (compressed-tensors), an index of groups (there, and GPTQ with
     * desc_act); else compressed-tensors has none, and GPTQ may have an index that is in order */
    bool asymmetric, indexed;
};

/* config: of config.json, or NULL. Damaged and unknown ones set `refused`, no error. */
void packing_read(struct packing *p, const json_t *config);

#endif
