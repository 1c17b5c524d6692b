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
    PACKING_NVFP4, /* compressed-tensors, compressors/nvfp4 */
    /* ModelOpt, torch/export/quant_utils.py: each matrix in NVFP4, MXFP4 or FP8, told by its
     * parts */
    PACKING_MODELOPT,
    PACKING_TABLE,        /* bitsandbytes, functional.py: QuantState, 4 bits */
    PACKING_MLX,          /* MLX, nn/layers/quantized.py and ops.cpp: affine, mxfp4, nvfp4 */
    PACKING_NVFP4_BLOCKS, /* NVFP4 of GGUF files with a scale beside (llama.cpp) */
    PACKING_ROWS,         /* ik_llama.cpp's GGUF types with one scale a row: row_scaled.h */
    PACKING_FP8,          /* transformers, integrations/finegrained_fp8.py; compressed-tensors */
    /* DeepSeek V4's own (as llama.cpp's conversion/deepseek.py reads it): FP8 as above and MXFP4,
     * told by the codes' type, both with powers of two beside; method "fp8", told from that by the
     * tensors */
    PACKING_FP8_FP4
};

struct packing {
    enum packing_kind kind;
    char method[96];  /* as in the config, "gptq"; empty: not packed */
    char refused[96]; /* an unsupported setting, "bits 3"; empty: none */
    int bits;         /* of an integer: 4 or 8 */
    int group;        /* columns per scale; 0: not given, or a whole row */
    bool integers;    /* MLX: affine, else floats of 4 bits */
    bool varied;      /* some modules have other group sizes */
    /* MLX: settings by module; the config's, and valid as long as that is */
    const json_t *modules;
    bool zeros_whole; /* GPTQ: zero points are stored directly (gptq_v2), not less one */
    /* each matrix has zero points (compressed-tensors), an index of groups (there, and GPTQ with
     * desc_act); else compressed-tensors has none, and GPTQ may have an index that is in order */
    bool asymmetric, indexed;
};

/* config: config.json, or NULL; modelopt: hf_quant_config.json, or NULL, used if the former says
 * nothing. Damaged and unknown ones set `refused`, no error. */
void packing_read(struct packing *p, const json_t *config, const json_t *modelopt);
/* MLX's settings q, of all modules or of one, to *p, whose `modules` stay. */
void packing_read_mlx(struct packing *p, const json_t *q);

#endif
