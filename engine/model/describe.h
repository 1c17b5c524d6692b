/* Inside engine/model only: what the layers of a model are, by its metadata. Families whose layers
 * differ say so here; a folder without weights, and checkpoints whose matrices are packed, are
 * described by config.json alone before anybody asks whether they can be computed. Thread: the one
 * that loads. */
#ifndef ENGINE_MODEL_DESCRIBE_H
#define ENGINE_MODEL_DESCRIBE_H

#include "engine/model/family.h"

/* Reading one file's metadata. The first error sticks: a family asks for all it needs, and whoever
 * called it looks once. */
struct describer {
    const struct weight_file *f;
    const struct family *family;
    struct error *e;
    int rc;
};

/* Numbers of config.json, or what GGUF calls them (family.renamed), within what makes sense;
 * `missing` where it is silent. */
int describe_int(struct describer *d, const char *name, int missing, int least, int most);
float describe_float(struct describer *d, const char *name, float missing);
bool describe_flag(struct describer *d, const char *name, bool missing);
/* A text, or element i of a list of texts, is this word. */
bool describe_is(struct describer *d, const char *name, const char *word);
bool describe_listed(struct describer *d, const char *name, int i, const char *word);
/* Element i of a list of numbers or flags, or the number that stands there for all; `missing` where
 * there is neither. */
int describe_int_at(struct describer *d, const char *name, int i, int missing);
/* Refuses a text that is none of these words (NULL-terminated), and a flag that is set: what they
 * ask for is not computed. */
void describe_only(struct describer *d, const char *name, const char *const *words);
void describe_never(struct describer *d, const char *name);
/* Refuses a number that is not this one, to a millionth. */
void describe_only_number(struct describer *d, const char *name, double value);
/* Refuses what any family's config.json may ask for beyond what hp, all of it read, says is
 * computed. settings.c */
void describe_settings(const struct hparams *hp, struct describer *d);
/* There is a list under this name; it must have a value a layer then. */
bool describe_per_layer(struct describer *d, const struct hparams *hp, const char *name);
bool describe_is_gguf(const struct describer *d);
/* The file has this tensor of that layer; false without tensors. */
bool describe_has(const struct describer *d, enum tensor_role role, int layer);
/* The first error of this description, in the words of error_set. */
void describe_refuse(struct describer *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For the `layers` of a family, which finds hp->layers filled: mixers are the common one, and
 * feed-forwards what the tensors show (hparams_read), or, where config.json is all there is
 * (hparams_describe), what most families' keys say: dense ones first, every so often, or by list;
 * shared experts as one. */

/* Every mixer is latent attention: a `layers` of its own, or the beginning of one. */
void describe_latent(struct hparams *hp, struct describer *d);
/* Width of a recurrent mixer's value heads, which GGUF files give for all heads together
 * ("inner_size"). */
int describe_inner_dim(struct describer *d, const char *heads, const char *dim);
/* A layer's feed-forward becomes dense, or none. */
void describe_dense(struct ffn_shape *ffn, int width);
void describe_no_ffn(struct ffn_shape *ffn);
/* A shared expert of this width beside the routed ones; 0: none. */
void describe_shared(struct ffn_shape *ffn, int width);

/* hp from config.json alone; hp->layers is mem_alloc'ed, owned by the model. ERR_MODEL, ERR_MEMORY.
 */
int hparams_describe(struct hparams *hp, const struct family *family, const struct weight_file *f,
                     struct error *e);

#endif
