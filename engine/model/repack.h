/* Inside engine/model only: processes the bytes of a matrix job, a piece at a time: checks,
 * gathers, converts, interleaves. Pure: any thread, nothing is allocated; the caller passes
 * destination and scratch, and where the tensor's bytes are (a copy of the job with another tensor
 * view works too). So weights are made the same way whether all of them are packed once (load.c) or
 * one expert at a time (expert_reader.c). */
#ifndef ENGINE_MODEL_REPACK_H
#define ENGINE_MODEL_REPACK_H

#include "engine/model/bind.h"

struct piece {
    const struct matrix_job *job;
    int first, count;     /* groups; mapped matrices: unused */
    size_t offset, bytes; /* of the source in its tensor */
};

/* At most count groups of a job, from `first` on. */
struct piece repack_piece(const struct matrix_job *j, int first, int count);
/* Number of groups with about so many bytes in the file, at least one. */
int repack_groups(const struct matrix_job *j, size_t bytes);
/* All of a gathered job: its rows are spread over the whole source. */
struct piece repack_whole(const struct matrix_job *j);
/* Bytes of scratch that repack needs for this job; 0: none. */
size_t repack_scratch(const struct matrix_job *j);
/* Whether all values of the piece are finite; gathered ones are checked by repack. */
bool repack_look(const struct piece *p);
/* Packs the piece into `to`, the start of the whole matrix. false: a gathered row has a non-finite
 * value. */
bool repack(const struct piece *p, uint8_t *to, uint8_t *scratch);

#endif
