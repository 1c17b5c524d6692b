/* Inside engine/model only: the layers of a model, by its metadata. Families whose layers differ
 * define them here; a folder without weights, and checkpoints with packed matrices, are described
 * by config.json alone, before checking whether they can be computed. Thread: the one that
 * loads. */
#ifndef ENGINE_MODEL_DESCRIBE_H
#define ENGINE_MODEL_DESCRIBE_H

#include "engine/model/family.h"

/* A reader of one file's metadata. The first error is sticky: a family reads all it needs, and the
 * caller checks once. */
struct describer {
    const struct weight_file *f;
    const struct family *family;
    struct error *e;
    int rc;
};

/* Numbers of config.json, or their GGUF keys (family.renamed), within a valid range; `missing` if
 * absent. */
int describe_int(struct describer *d, const char *name, int missing, int least, int most);
float describe_float(struct describer *d, const char *name, float missing);
bool describe_flag(struct describer *d, const char *name, bool missing);
/* Whether a text, or element i of a list of texts, is this word. */
bool describe_is(struct describer *d, const char *name, const char *word);
bool describe_listed(struct describer *d, const char *name, int i, const char *word);
/* Whether a list of config.json has this number. */
bool describe_numbered(const struct describer *d, const char *name, int number);
/* Element i of a list of numbers or flags, or a single number that applies to all; `missing` if
 * absent. */
int describe_int_at(struct describer *d, const char *name, int i, int missing);
/* The same of any number; flags are 0 and 1. */
double describe_number_at(struct describer *d, const char *name, int i, double missing);
/* Error if a text is none of these words (NULL-terminated), or a flag is set: those variants are
 * not computed. */
void describe_only(struct describer *d, const char *name, const char *const *words);
void describe_never(struct describer *d, const char *name);
/* Error if a number is not this one, to a millionth. */
void describe_only_number(struct describer *d, const char *name, double value);
/* Error if config.json, of any family, requires more than hp, completely read, says is computed.
 * settings.c */
void describe_settings(const struct hparams *hp, struct describer *d);
/* Whether there is a list under this name; it must have a value per layer then. */
bool describe_per_layer(struct describer *d, const struct hparams *hp, const char *name);
/* Whether a layer has a window: by layer_types; by GGUF's list or period under the name that
 * sliding_window_pattern has there; else every layer but the last of `period`, or but the first. */
bool describe_windowed(struct describer *d, int layer, int period, bool first_sees_all);
/* Takes the window from layers without one (describe_windowed) and rotates those with one by the
 * second table: config.json has its base and part under rope_parameters.sliding_attention, GGUF
 * under names in _swa. Of its config.json only scalings that are computed per kind of layer. */
void describe_two_ropes(struct hparams *hp, struct describer *d, int period, bool first_sees_all);
/* Layers have inputs of their own (layer_shape.inputs), as wide as hidden_size_per_layer_input
 * says, and the last num_kv_shared_layers read the keys and values of the last one before them with
 * as wide a window. Gemma 3n and 4. */
void describe_layer_inputs(struct hparams *hp, struct describer *d);
void describe_shared_keys(struct hparams *hp, struct describer *d);
bool describe_is_gguf(const struct describer *d);
/* Whether the file has this tensor of that layer; false without tensors. */
bool describe_has(const struct describer *d, enum tensor_role role, int layer);
/* The first error of this description, in the words of error_set. */
void describe_refuse(struct describer *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For the `layers` of a family, called with hp->layers filled: mixers are the common one, and
 * feed-forwards as the tensors show (hparams_read), or, with config.json only (hparams_describe),
 * as the keys of most families say: dense ones first, every so often, or by list; shared experts as
 * one. */

/* Every mixer is latent attention: usable as a `layers` function, or as its start. */
void describe_latent(struct hparams *hp, struct describer *d);
/* Width of a recurrent mixer's value heads, which GGUF files give for all heads together
 * ("inner_size"). */
int describe_inner_dim(struct describer *d, const char *heads, const char *dim);
/* Makes a layer's feed-forward dense, or removes it. */
void describe_dense(struct ffn_shape *ffn, int width);
void describe_no_ffn(struct ffn_shape *ffn);
/* A shared expert of this width beside the routed ones; 0: none. */
void describe_shared(struct ffn_shape *ffn, int width);

/* hp from config.json alone; hp->layers is mem_alloc'ed, owned by the model. ERR_MODEL, ERR_MEMORY.
 */
int hparams_describe(struct hparams *hp, const struct family *family, const struct weight_file *f,
                     struct error *e);

#endif
