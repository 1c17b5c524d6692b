/* llama-perplexity's file of base logits (--kl-divergence-base): the tokens of a text in chunks
 * and, for the second half of each, the log-probabilities of all tokens. Written as a stream to a
 * temporary file; read row by row, after checking every number of its header against its size.
 * Owner: the caller; one thread. */
#ifndef APP_QUALITY_BASE_FILE_H
#define APP_QUALITY_BASE_FILE_H

#include "engine/base/error.h"

#include <stdio.h>

struct base_file {
    FILE *file;
    char *path, *temporary; /* NULL: being read */
    int context, vocabulary, chunks;
    int *ids;  /* (chunks, context), being read */
    void *row; /* the newest, packed (log_probs.h) */
};

/* Rows that a chunk of so many tokens has. */
int base_file_rows(int context);
/* Zeroed before; base_file_close in any case. ids: (chunks, context). ERR_IO, ERR_MEMORY. */
int base_file_create(struct base_file *f, const char *path, int context, int vocabulary,
                     const int *ids, int chunks, struct error *e);
int base_file_write(struct base_file *f, const float *logits, struct error *e);
/* All rows are written: the file is renamed to its final name. */
int base_file_finish(struct base_file *f, struct error *e);
/* ERR_IO, ERR_INPUT: no such file, damaged, or of a model with other tokens. */
int base_file_open(struct base_file *f, const char *path, int vocabulary, struct error *e);
/* The next row, at f->row. */
int base_file_read(struct base_file *f, struct error *e);
void base_file_close(struct base_file *f);

#endif
