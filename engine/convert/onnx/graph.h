/* Builds an ONNX graph, in the structures that protobuf-c generates from onnx.proto: nodes,
 * attributes, constants, bodies of loops, inputs and outputs (https://onnx.ai/onnx/intro, IR 8).
 * Values are referenced by name; returned names are owned by the graph. Out of memory is sticky:
 * names are empty from then on, and onnx_graph_write returns the error. One thread. */
#ifndef ENGINE_CONVERT_ONNX_GRAPH_H
#define ENGINE_CONVERT_ONNX_GRAPH_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ONNX_OPSET 18
#define ONNX_IR 8
#define ONNX_DIMS 5

/* TensorProto.DataType */
enum onnx_type {
    ONNX_FLOAT = 1,
    ONNX_INT64 = 7,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_BFLOAT16 = 16
};

struct onnx_graph;

/* NULL: no memory. */
struct onnx_graph *onnx_graph_new(void);
void onnx_graph_free(struct onnx_graph *g); /* accepts NULL */

/* Sets the prefix of further names: "layers.3.". */
void onnx_scope(struct onnx_graph *g, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a node of one output; returns its name. inputs: NULL-terminated; "": an omitted one. */
const char *onnx_node(struct onnx_graph *g, const char *type, const char *const *inputs);
#define ONNX(g, type, ...) onnx_node(g, type, (const char *const[]){__VA_ARGS__, NULL})
/* For the last node: a further output, another name for its first one, another domain than the
 * default one (its version becomes part of the model), attributes. */
const char *onnx_mtp_output(struct onnx_graph *g);
const char *onnx_call(struct onnx_graph *g, const char *name);
void onnx_domain(struct onnx_graph *g, const char *domain);
void onnx_set_int(struct onnx_graph *g, const char *name, int64_t v);
void onnx_set_float(struct onnx_graph *g, const char *name, float v);
void onnx_set_string(struct onnx_graph *g, const char *name, const char *v);
void onnx_set_ints(struct onnx_graph *g, const char *name, int n, const int64_t *v);

const char *onnx_cast(struct onnx_graph *g, const char *value, enum onnx_type to);

/* Constants of the whole model, deduplicated: a number without dimensions, n of them in one. */
const char *onnx_int(struct onnx_graph *g, int64_t v);
const char *onnx_float(struct onnx_graph *g, float v);
const char *onnx_ints(struct onnx_graph *g, int n, const int64_t *v);
#define ONNX_INTS(g, ...)                                                   \
    onnx_ints(g, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
              (const int64_t[]){__VA_ARGS__})

/* Between the two, nodes are added to a loop body: its number and condition (onnx_body_*), its
 * carried values, and their new values. The Loop runs `count` times over the floats `carried`;
 * returns its result. */
struct onnx_body {
    const char *number, *condition, *carried;
};
struct onnx_body onnx_loop_begin(struct onnx_graph *g);
const char *onnx_loop_end(struct onnx_graph *g, const struct onnx_body *body, const char *made,
                          const char *count, const char *carried);

/* dims: numbers, or names of variable lengths; NULL ends them. */
struct onnx_dim {
    const char *name; /* NULL: size counts */
    int64_t size;
};
void onnx_input(struct onnx_graph *g, const char *name, enum onnx_type type, int n,
                const struct onnx_dim *dims);
void onnx_output(struct onnx_graph *g, const char *name, enum onnx_type type, int n,
                 const struct onnx_dim *dims);

/* Weights: a tensor that is named now and located later. */
struct onnx_tensor;
struct onnx_tensor *onnx_weight(struct onnx_graph *g, const char *name, enum onnx_type type, int n,
                                const int64_t *dims);
const char *onnx_weight_name(const struct onnx_tensor *t); /* NULL: "" */
/* Stored in a file of the model's folder. */
void onnx_weight_outside(struct onnx_graph *g, struct onnx_tensor *t, const char *location,
                         uint64_t offset, uint64_t bytes);
/* Stored in the model's own file; data is copied. */
void onnx_weight_inside(struct onnx_graph *g, struct onnx_tensor *t, const void *data,
                        size_t bytes);

/* The whole model as protobuf: mem_alloc'd, the caller's. ERR_MEMORY; ERR_MODEL: it would exceed
 * protobuf's 2 GiB. */
int onnx_graph_write(struct onnx_graph *g, const char *name, uint8_t **out, size_t *bytes,
                     struct error *e);

#endif
