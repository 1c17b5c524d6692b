/* From options, and from a JSON object, to sampling parameters. Any thread that owns what it
 * passes. */
#ifndef APP_SETUP_SAMPLING_OPTIONS_H
#define APP_SETUP_SAMPLING_OPTIONS_H

#include "app/options/options.h"
#include "engine/base/json.h"
#include "engine/run/sampling/sampling.h"

/* Sampling parameters of the options; a seed of -1 is replaced by a random one here. The options
 * must have passed sampling_options_check. */
void sampling_from_options(const struct options *o, struct sampling *s);
/* ERR_USAGE: an invalid value of --samplers, --logit-bias and the like. */
int sampling_options_check(const struct options *o, struct error *e);

/* Changes in *s what the object says, by llama-server's names: temperature, top_k, top_p, min_p,
 * repeat_penalty, repeat_last_n, presence_penalty, frequency_penalty, typical_p, top_n_sigma,
 * xtc_probability, xtc_threshold, dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n,
 * dry_sequence_breakers ([TEXT …]), logit_bias ([[TOKEN, BIAS] …] or {"TOKEN": BIAS}; false:
 * never), samplers ([NAME …] or LETTERS), seed. null stands for a key that is not there; other keys
 * are the caller's. ERR_INPUT; *param (may be NULL) is the key that is wrong, then. */
int sampling_read_json(struct sampling *s, const json_t *o, const char **param, struct error *e);
/* The i-th of those keys; NULL past the end. */
const char *sampling_json_key(size_t i);

#endif
