/* Configuration files: YAML with one key per option (its long name), read with libyaml. Main
 * thread. Errors are "file:line:column: …" with the remedy. Files are untrusted: bounded in size,
 * aliases are never expanded, and nothing nests. */
#ifndef APP_OPTIONS_CONFIG_H
#define APP_OPTIONS_CONFIG_H

#include "app/options/options.h"

#define CONFIG_BYTES_MAX (1 << 20)

/* Reads one file into o. place: which options it may set (OPTION_FILE, OPTION_MODEL). ERR_USAGE for
 * errors in the file, or if it cannot be read; a missing file is fine (0) unless must_exist. */
int config_read(struct options *o, const char *path, enum option_origin from, int place,
                bool must_exist, struct error *e);
/* The same from memory; name stands for the path in messages. */
int config_parse(struct options *o, const char *text, size_t n, const char *name,
                 enum option_origin from, int place, struct error *e);
/* The file of --config, or those of the usual locations: every $XDG_CONFIG_DIRS/moetop/config.yaml,
 * lowest precedence first, then the user's. */
int config_read_all(struct options *o, struct error *e);
/* Settings beside the model (X.gguf: X.yaml, a folder: FOLDER/moetop.yaml), if any. */
int config_read_model(struct options *o, const char *model_path, struct error *e);

#endif
