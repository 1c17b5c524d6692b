/* The result of reading an adapter: its shares of the model's matrices, whatever the format.
 * Private to engine/adapter. Thread: see adapter.h. */
#ifndef ENGINE_ADAPTER_READING_H
#define ENGINE_ADAPTER_READING_H

#include "engine/adapter/adapter.h"
#include "engine/base/strbuf.h"
#include "engine/model/block.h"
#include "engine/model/family.h"

#define READING_FILES 2

/* A matrix inside a tensor: element (i, j) is the tensor's from + i * row + j * col; its rows may
 * be parts of heads (struct share). */
struct strided {
    const struct tensor_view *t;
    int64_t from, row, col;
    int64_t head; /* from one head to the next */
};

/* A gated delta net's heads, which a folder has elsewhere than a GGUF file. ORDER_DEALT: the file's
 * value head h is the folder's head h % keys * each + h / keys, rows (or columns) of `dim` behind
 * `first` others. ORDER_JOINT: all rows of a key head (query, key, its values, their gates) lie
 * together in the folder, where the file has all queries, all keys, all values; ORDER_GATES: of
 * those the gates. */
struct head_order {
    enum { ORDER_SAME, ORDER_DEALT, ORDER_JOINT, ORDER_GATES } kind;
    int keys, each; /* key heads, value heads of each */
    int first, dim;
    int key_dim;
};

/* How the rows of a head must be reordered to match the model. */
enum share_turn { TURN_NONE, TURN_TO_HALVES, TURN_TO_PAIRS };

/* One adapter on one matrix: a (rank, w->cols), b (w->rows, rank). Of a latent row's keys and
 * values: heads are how many the matrix has one after the other, else 0. If heads_of_a, each has an
 * a of its own and b is that of one; else b's rows are those of the heads. */
struct share {
    struct matrix *w;
    int heads;
    bool heads_of_a;
    bool expert;
    int adapter, rank;
    float scale;
    struct strided a, b;
    enum share_turn turn;
    int head; /* rows of a head; used only with turn */
    struct head_order rows, cols;
};

struct reading {
    struct model *model;
    const struct family *family;
    int adapter; /* number of the one being read */
    struct adapter_info *info;
    struct weight_file *files[READING_FILES]; /* whose tensors shares point into */
    struct share *shares;
    size_t n, room;
    struct strbuf unplaced;
};

/* The tensors A and B. rank: as given by the format. stacked: all experts, (experts, rank, cols)
 * and (experts, rows, rank). */
struct pair {
    const struct tensor_view *a, *b;
    int rank;
    float scale;
};

/* The meaning of a tensor's name: a role of the family's table, layer and expert; expert -1: not in
 * the name. */
struct place {
    enum tensor_role role;
    int layer, expert;
};

/* places.c. The name of a matrix in the model's family as files of that format spell it, without or
 * with its ".weight"; searches the table from *row on, *row is left after the match. false:
 * none. */
bool place_of(const struct reading *r, enum weight_format format, const char *name, int *row,
              struct place *out);
/* The block and the parts of a place, without checking shapes; experts: number of blocks from *id
 * on, 0: only that one. false: none. */
bool place_parts(const struct reading *r, const struct place *at, struct block_id *id, int *experts,
                 enum matrix_part parts[3], int *n);
/* Adds the pair. 1: added, 0: the model has no such matrix that supports adapters; ERR_MODEL: no
 * such layer or expert, a shape that does not fit. */
int reading_pair(struct reading *r, enum weight_format format, const struct place *at,
                 const struct pair *p, struct error *e);
/* Adds a share of a part of an expert (-1: the shared one, or a dense layer's) with any strides;
 * shapes were checked. */
int reading_expert(struct reading *r, int layer, int expert, enum matrix_part part, int rank,
                   float scale, struct strided a, struct strided b, struct error *e);
/* The matrix of a part, NULL: the layer has none. */
struct matrix *reading_matrix(const struct reading *r, struct block_id id, enum matrix_part part);
/* heads.c. Sets the orders of a part of a gated delta net on a GGUF base, of a folder's adapter. */
void reading_heads(const struct reading *r, const struct mixer_shape *s, enum matrix_part part,
                   bool joint, struct share *out);
/* Where the folder has what the GGUF file has at i. */
int64_t head_order_at(const struct head_order *o, int64_t i);
/* Records a tensor without a matching matrix. */
void reading_unplaced(struct reading *r, const char *tensor);
/* "(4, 64)" */
const char *shape_text(const struct tensor_view *t, char *out, size_t size);

/* A format: one file and one row in open.c. */
struct adapter_reader {
    const char *name;
    /* Whether path is of this format, by the files found there. */
    bool (*is)(const char *path);
    int (*read)(struct reading *r, const char *path, struct error *e);
};
extern const struct adapter_reader adapter_gguf, adapter_folder;

/* peft_config.c: adapter_config.json */
struct peft_config;
/* ERR_MODEL, naming the setting, if it is not supported. */
int peft_config_read(struct peft_config **out, const char *path, struct error *e);
void peft_config_free(struct peft_config *c); /* accepts NULL */
/* Rank and scale of a module by its path, patterns included. ERR_MODEL: an invalid pattern. */
int peft_config_rank(const struct peft_config *c, const char *module, int *rank, float *scale,
                     struct error *e);
/* Layout of fused experts in the PEFT release that wrote it: 1: (experts, out, in), 0: (experts,
 * in, out), -1: unknown. */
int peft_config_layout(const struct peft_config *c);
/* Whether the parameters it adapts directly include one that ends in this name, or it lists
 * none. */
bool peft_config_targets(const struct peft_config *c, const char *parameter);

/* fused.c: all experts' gates and ups, or downs, of a layer in one pair. 1: placed, 0: no such. */
int fused_pair(struct reading *r, const struct peft_config *c, const char *module, bool inner,
               bool both, const struct pair *p, struct error *e);
/* ktransformers.c: fused_expert_lora.safetensors */
int ktransformers_read(struct reading *r, const struct weight_file *f, const struct peft_config *c,
                       struct error *e);

#endif
