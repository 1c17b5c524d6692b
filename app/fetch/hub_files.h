/* The files of a repository as the Hub's API lists them, and which of them belong to the requested
 * model. No network access: the listing is data, and untrusted. Any thread. */
#ifndef APP_FETCH_HUB_FILES_H
#define APP_FETCH_HUB_FILES_H

#include "engine/base/digest.h"
#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* USER/REPO[:QUANT], parsed. */
struct hub_name {
    char repo[200]; /* "USER/REPO" */
    char quant[64]; /* "Q4_K_M"; "" when not given */
};

struct hub_file {
    char *path; /* below the repository; checked: does not leave the folder */
    uint64_t bytes;
    enum digest_kind kind;
    char hash[DIGEST_HEX]; /* the expected digest, and the name of the blob */
    bool wanted;
};

struct hub_files {
    char commit[41];
    struct hub_file *file;
    size_t n;
};

/* ERR_USAGE: malformed. */
int hub_name_parse(const char *text, struct hub_name *out, struct error *e);
/* The answer of /api/models/USER/REPO/revision/main?blobs=true. ERR_INPUT says what is wrong with
 * it; files without size or hash, or with a path that leaves the folder, are skipped. */
int hub_files_read(struct hub_files *f, const json_t *answer, struct error *e);
void hub_files_release(struct hub_files *f);
/* For qsort: by path, which is the order that a choice expects. */
int hub_files_order(const void *a, const void *b);

/* Marks the files to download. With a quant: the GGUF file of that name, all its parts. Without: in
 * a repository with GGUF files that of Q4_K_M, else Q8_0, else the first; otherwise the folder of
 * config.json, tokenizer and safetensors. `main` becomes the value for -m: a path below the
 * repository, "" for the folder. ERR_MODEL lists what there is instead. */
int hub_files_choose(struct hub_files *f, const struct hub_name *name, const char **main,
                     struct error *e);
/* Whether `path` is a GGUF file of that quant ("" matches any), and not a vision projector. */
bool hub_file_is_quant(const char *path, const char *quant);
/* For "NAME-00002-of-00005.gguf" 2 and 5, for a whole file 1 and 1; the length of the part before
 * the number. */
size_t hub_file_part(const char *path, int *number, int *count);

#endif
