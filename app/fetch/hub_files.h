/* The files of a repository as the Hub's API lists them, and which of them are the model that was
 * asked for. Nothing here speaks to anybody: the answer is data, and hostile. Any thread. */
#ifndef APP_FETCH_HUB_FILES_H
#define APP_FETCH_HUB_FILES_H

#include "engine/base/digest.h"
#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* USER/REPO[:QUANT], taken apart. */
struct hub_name {
    char repo[200]; /* "USER/REPO" */
    char quant[64]; /* "Q4_K_M"; "" when not given */
};

struct hub_file {
    char *path; /* below the repository; checked: no way out of a folder */
    uint64_t bytes;
    enum digest_kind kind;
    char hash[DIGEST_HEX]; /* what the digest must be, and the name of the blob */
    bool wanted;
};

struct hub_files {
    char commit[41];
    struct hub_file *file;
    size_t n;
};

/* ERR_USAGE: not of this form. */
int hub_name_parse(const char *text, struct hub_name *out, struct error *e);
/* The answer of /api/models/USER/REPO/revision/main?blobs=true. ERR_INPUT names what is wrong with
 * it; a file without size or hash, or with a path that leads out of the folder, is left out. */
int hub_files_read(struct hub_files *f, const json_t *answer, struct error *e);
void hub_files_release(struct hub_files *f);
/* For qsort: by path, which is the order that a choice expects. */
int hub_files_order(const void *a, const void *b);

/* Marks the wanted ones. With a quant: the GGUF file of that name, all its parts. Without: of a
 * repository with GGUF files that of Q4_K_M, else Q8_0, else the first; of one without, the folder
 * of config.json, tokenizer and safetensors. `main` becomes what -m would be given: a path below
 * the repository, "" for the folder. ERR_MODEL says what there is instead. */
int hub_files_choose(struct hub_files *f, const struct hub_name *name, const char **main,
                     struct error *e);
/* Whether `path` is a GGUF file of that quant ("" fits any), and no projector of images. */
bool hub_file_is_quant(const char *path, const char *quant);
/* Of "NAME-00002-of-00005.gguf" 2 and 5, of a whole file 1 and 1; the length of what comes before
 * the number. */
size_t hub_file_part(const char *path, int *number, int *count);

#endif
