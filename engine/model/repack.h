/* Inside engine/model only: what becomes of the bytes of a matrix job, a piece at a time: looked
 * at, gathered, converted, interleaved. Pure: any thread, nothing is allocated; who calls gives the
 * place and the scratch, and says where the tensor's bytes lie (a copy of the job with another
 * tensor view is as good). So weights are made the same way whether all of them are packed once
 * (load.c) or one expert at a time (expert_reader.c). */
#ifndef ENGINE_MODEL_REPACK_H
#define ENGINE_MODEL_REPACK_H

#include "engine/model/bind.h"

struct piece {
    const struct matrix_job *job;
    int first, count;     /* groups; mapped matrices: unused */
    size_t offset, bytes; /* of the source in its tensor */
};

/* At most count groups of a job, from one on. */
struct piece repack_piece(const struct matrix_job *j, int first, int count);
/* Groups that have about so many bytes in the file, at least one. */
int repack_groups(const struct matrix_job *j, size_t bytes);
/* All of a gathered job: its rows are all over what they are gathered from. */
struct piece repack_whole(const struct matrix_job *j);
/* Bytes that repack needs for this job beside what it reads and writes; 0: none. */
size_t repack_scratch(const struct matrix_job *j);
/* Whether the piece holds numbers alone; gathered ones are looked at by repack. */
bool repack_look(const struct piece *p);
/* Packs the piece into `to`, the start of the whole matrix. false: a gathered row holds what is no
 * number. */
bool repack(const struct piece *p, uint8_t *to, uint8_t *scratch);

#endif
