/* See graph.h. Everything is allocated in blocks that are freed together; growing lists are copied
 * into them when their graph is complete. */
#include "engine/convert/onnx/graph.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <limits.h>
#include <onnx.pb-c.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK ((size_t)256 << 10)
#define ATTRIBUTES 12
#define OUTPUTS 4
#define INPUTS 8
#define DOMAINS 2

struct block {
    struct block *before;
    size_t used, size;
    _Alignas(16) char data[];
};

struct list {
    void **items;
    size_t n, room;
};

/* A node with the arrays it points to. */
struct node {
    Onnx__NodeProto p;
    char *inputs[INPUTS], *outputs[OUTPUTS];
    Onnx__AttributeProto *attributes[ATTRIBUTES];
};

struct onnx_tensor {
    Onnx__TensorProto p;
    int64_t dims[ONNX_DIMS];
    Onnx__StringStringEntryProto entries[3], *outside[3];
};

struct onnx_graph {
    struct block *block;
    bool failed;
    char scope[64];
    unsigned names;
    struct node *last;
    /* of the model, and of the current body; body: inside one */
    struct list nodes, body_nodes, inputs, outputs, tensors;
    bool body;
    char *domains[DOMAINS];
    int n_domains;
};

/* ---- memory ---- */

static void *take(struct onnx_graph *g, size_t bytes)
{
    struct block *b = g->block;
    void *p;

    bytes = (bytes + 15) / 16 * 16;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK ? bytes : BLOCK;

        if (g->failed || !(b = mem_alloc(1, sizeof *b + size))) {
            g->failed = true;
            return NULL;
        }
        b->before = g->block;
        b->size = size;
        g->block = b;
    }
    p = b->data + b->used;
    b->used += bytes;
    return p;
}

static void *copy(struct onnx_graph *g, const void *data, size_t bytes)
{
    void *p = take(g, bytes ? bytes : 1);

    return p && bytes ? memcpy(p, data, bytes) : p;
}

/* NULL also if memory ran out before. */
static char *text(struct onnx_graph *g, const char *s)
{
    return s ? copy(g, s, strlen(s) + 1) : NULL;
}

static void put(struct onnx_graph *g, struct list *l, void *item)
{
    if (MEM_ROOM(l->items, l->n, l->room, 64))
        l->items[l->n++] = item;
    else
        g->failed = true;
}

struct onnx_graph *onnx_graph_new(void)
{
    return mem_alloc(1, sizeof(struct onnx_graph));
}

void onnx_graph_free(struct onnx_graph *g)
{
    if (!g)
        return;
    for (struct block *b = g->block, *before; b; b = before) {
        before = b->before;
        mem_free(b);
    }
    mem_free(g->nodes.items);
    mem_free(g->body_nodes.items);
    mem_free(g->inputs.items);
    mem_free(g->outputs.items);
    mem_free(g->tensors.items);
    mem_free(g);
}

/* ---- nodes ---- */

void onnx_scope(struct onnx_graph *g, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(g->scope, sizeof g->scope, format, ap);
    va_end(ap);
}

/* "layers.3.Gemm_17" */
static char *new_name(struct onnx_graph *g, const char *type)
{
    char name[128];

    snprintf(name, sizeof name, "%s%s_%u", g->scope, type, g->names++);
    return text(g, name);
}

const char *onnx_node(struct onnx_graph *g, const char *type, const char *const *inputs)
{
    struct node *n = take(g, sizeof *n);

    if (!n)
        return "";
    memset(n, 0, sizeof *n);
    onnx__node_proto__init(&n->p);
    n->p.op_type = text(g, type);
    n->p.name = n->outputs[0] = new_name(g, type);
    n->p.input = n->inputs;
    n->p.output = n->outputs;
    n->p.attribute = n->attributes;
    n->p.n_output = 1;
    while (*inputs && n->p.n_input < INPUTS)
        n->inputs[n->p.n_input++] = text(g, *inputs++);
    g->last = n;
    put(g, g->body ? &g->body_nodes : &g->nodes, &n->p);
    return g->failed ? "" : n->outputs[0];
}

const char *onnx_mtp_output(struct onnx_graph *g)
{
    char *name = new_name(g, "output");

    if (g->failed || g->last->p.n_output == OUTPUTS)
        return "";
    return g->last->outputs[g->last->p.n_output++] = name;
}

const char *onnx_call(struct onnx_graph *g, const char *name)
{
    char *own = text(g, name);

    return g->failed ? "" : (g->last->outputs[0] = own);
}

void onnx_domain(struct onnx_graph *g, const char *domain)
{
    char *own = text(g, domain);
    int i = 0;

    if (g->failed)
        return;
    g->last->p.domain = own;
    while (i < g->n_domains && strcmp(g->domains[i], domain))
        i++;
    if (i == g->n_domains && i < DOMAINS)
        g->domains[g->n_domains++] = own;
}

static Onnx__AttributeProto *attribute(struct onnx_graph *g, const char *name,
                                       Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *a = take(g, sizeof *a);

    if (g->failed || !a || g->last->p.n_attribute == ATTRIBUTES)
        return NULL;
    onnx__attribute_proto__init(a);
    a->name = text(g, name);
    a->has_type = 1;
    a->type = type;
    g->last->attributes[g->last->p.n_attribute++] = a;
    return g->failed ? NULL : a;
}

void onnx_set_int(struct onnx_graph *g, const char *name, int64_t v)
{
    Onnx__AttributeProto *a = attribute(g, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);

    if (a) {
        a->has_i = 1;
        a->i = v;
    }
}

void onnx_set_float(struct onnx_graph *g, const char *name, float v)
{
    Onnx__AttributeProto *a = attribute(g, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);

    if (a) {
        a->has_f = 1;
        a->f = v;
    }
}

void onnx_set_string(struct onnx_graph *g, const char *name, const char *v)
{
    Onnx__AttributeProto *a = attribute(g, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);

    if (a) {
        a->has_s = 1;
        a->s = (ProtobufCBinaryData){strlen(v), (uint8_t *)text(g, v)};
    }
}

void onnx_set_ints(struct onnx_graph *g, const char *name, int n, const int64_t *v)
{
    Onnx__AttributeProto *a = attribute(g, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);

    if (a) {
        a->n_ints = (size_t)n;
        a->ints = copy(g, v, (size_t)n * sizeof *v);
    }
}

const char *onnx_cast(struct onnx_graph *g, const char *value, enum onnx_type to)
{
    const char *out = ONNX(g, "Cast", value);

    onnx_set_int(g, "to", (int64_t)to);
    return out;
}

/* ---- tensors ---- */

struct onnx_tensor *onnx_weight(struct onnx_graph *g, const char *name, enum onnx_type type, int n,
                                const int64_t *dims)
{
    struct onnx_tensor *t = take(g, sizeof *t);

    if (!t)
        return NULL;
    memset(t, 0, sizeof *t);
    onnx__tensor_proto__init(&t->p);
    t->p.name = text(g, name);
    t->p.has_data_type = 1;
    t->p.data_type = (int32_t)type;
    t->p.n_dims = (size_t)n;
    t->p.dims = t->dims;
    for (int d = 0; d < n; d++)
        t->dims[d] = dims[d];
    put(g, &g->tensors, &t->p);
    return g->failed ? NULL : t;
}

const char *onnx_weight_name(const struct onnx_tensor *t)
{
    return t ? t->p.name : "";
}

void onnx_weight_outside(struct onnx_graph *g, struct onnx_tensor *t, const char *location,
                         uint64_t offset, uint64_t bytes)
{
    static const char *const keys[] = {"location", "offset", "length"};
    char values[2][24];

    if (!t)
        return;
    snprintf(values[0], sizeof *values, "%llu", (unsigned long long)offset);
    snprintf(values[1], sizeof *values, "%llu", (unsigned long long)bytes);
    for (int i = 0; i < 3; i++) {
        onnx__string_string_entry_proto__init(&t->entries[i]);
        t->entries[i].key = text(g, keys[i]);
        t->entries[i].value = text(g, i ? values[i - 1] : location);
        t->outside[i] = &t->entries[i];
    }
    t->p.n_external_data = 3;
    t->p.external_data = t->outside;
    t->p.has_data_location = 1;
    t->p.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

void onnx_weight_inside(struct onnx_graph *g, struct onnx_tensor *t, const void *data, size_t bytes)
{
    void *own = copy(g, data, bytes);

    if (!t || !own)
        return;
    t->p.has_raw_data = 1;
    t->p.raw_data = (ProtobufCBinaryData){bytes, own};
}

/* The constant of that name, created if missing. */
static const char *constant(struct onnx_graph *g, const char *name, enum onnx_type type, int n_dims,
                            int64_t n, const void *data, size_t bytes)
{
    struct onnx_tensor *t;

    for (size_t i = 0; i < g->tensors.n && !g->failed; i++) {
        const Onnx__TensorProto *p = g->tensors.items[i];

        if (strcmp(p->name, name) == 0)
            return p->name;
    }
    t = onnx_weight(g, name, type, n_dims, &n);
    onnx_weight_inside(g, t, data, bytes);
    return t ? t->p.name : "";
}

const char *onnx_int(struct onnx_graph *g, int64_t v)
{
    char name[32];

    snprintf(name, sizeof name, "int.%lld", (long long)v);
    return constant(g, name, ONNX_INT64, 0, 1, &v, sizeof v);
}

const char *onnx_float(struct onnx_graph *g, float v)
{
    char name[48];

    snprintf(name, sizeof name, "float.%.9g", (double)v);
    return constant(g, name, ONNX_FLOAT, 0, 1, &v, sizeof v);
}

const char *onnx_ints(struct onnx_graph *g, int n, const int64_t *v)
{
    struct strbuf name = {0};
    const char *made;

    strbuf_puts(&name, "ints");
    for (int i = 0; i < n; i++)
        strbuf_printf(&name, ".%lld", (long long)v[i]);
    if (name.failed || !name.data) {
        g->failed = true;
        strbuf_release(&name);
        return "";
    }
    made = constant(g, name.data, ONNX_INT64, 1, n, v, (size_t)n * sizeof *v);
    strbuf_release(&name);
    return made;
}

/* ---- inputs and outputs ---- */

/* Properties of a value: its type, and dims if known (n >= 0). */
struct value {
    Onnx__ValueInfoProto p;
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dims[ONNX_DIMS], *all[ONNX_DIMS];
};

static void set_dims(struct onnx_graph *g, struct value *v, int n, const struct onnx_dim *dims)
{
    onnx__tensor_shape_proto__init(&v->shape);
    v->shape.n_dim = (size_t)n;
    v->shape.dim = v->all;
    for (int d = 0; d < n; d++) {
        onnx__tensor_shape_proto__dimension__init(&v->dims[d]);
        v->all[d] = &v->dims[d];
        if (dims[d].name) {
            v->dims[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            v->dims[d].dim_param = text(g, dims[d].name);
        } else {
            v->dims[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            v->dims[d].dim_value = dims[d].size;
        }
    }
    v->tensor.shape = &v->shape;
}

static Onnx__ValueInfoProto *value(struct onnx_graph *g, const char *name, enum onnx_type type,
                                   int n, const struct onnx_dim *dims)
{
    struct value *v = take(g, sizeof *v);

    if (!v)
        return NULL;
    memset(v, 0, sizeof *v);
    onnx__value_info_proto__init(&v->p);
    onnx__type_proto__init(&v->type);
    onnx__type_proto__tensor__init(&v->tensor);
    v->p.name = text(g, name);
    v->p.type = &v->type;
    v->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    v->type.tensor_type = &v->tensor;
    v->tensor.has_elem_type = 1;
    v->tensor.elem_type = (int32_t)type;
    if (n >= 0)
        set_dims(g, v, n, dims);
    return &v->p;
}

void onnx_input(struct onnx_graph *g, const char *name, enum onnx_type type, int n,
                const struct onnx_dim *dims)
{
    put(g, &g->inputs, value(g, name, type, n, dims));
}

void onnx_output(struct onnx_graph *g, const char *name, enum onnx_type type, int n,
                 const struct onnx_dim *dims)
{
    put(g, &g->outputs, value(g, name, type, n, dims));
}

/* ---- bodies ---- */

struct onnx_body onnx_loop_begin(struct onnx_graph *g)
{
    struct onnx_body b = {new_name(g, "number"), new_name(g, "condition"), new_name(g, "carried")};

    g->body = true;
    g->body_nodes.n = 0;
    return b;
}

struct body {
    Onnx__GraphProto p;
    Onnx__ValueInfoProto *inputs[3], *outputs[2];
};

static Onnx__GraphProto *body_of(struct onnx_graph *g, const struct onnx_body *b, const char *made)
{
    struct body *p = take(g, sizeof *p);
    const char *go_on = ONNX(g, "Identity", b->condition);

    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    onnx__graph_proto__init(&p->p);
    p->p.name = new_name(g, "body");
    p->inputs[0] = value(g, b->number, ONNX_INT64, 0, NULL);
    p->inputs[1] = value(g, b->condition, ONNX_BOOL, 0, NULL);
    p->inputs[2] = value(g, b->carried, ONNX_FLOAT, -1, NULL);
    p->outputs[0] = value(g, go_on, ONNX_BOOL, 0, NULL);
    p->outputs[1] = value(g, made, ONNX_FLOAT, -1, NULL);
    p->p.n_input = 3;
    p->p.input = p->inputs;
    p->p.n_output = 2;
    p->p.output = p->outputs;
    p->p.n_node = g->body_nodes.n;
    p->p.node = copy(g, g->body_nodes.items, g->body_nodes.n * sizeof(void *));
    return g->failed ? NULL : &p->p;
}

const char *onnx_loop_end(struct onnx_graph *g, const struct onnx_body *body, const char *made,
                          const char *count, const char *carried)
{
    Onnx__GraphProto *p = body_of(g, body, made);
    Onnx__AttributeProto *a;
    const char *out;

    g->body = false;
    out = ONNX(g, "Loop", count, "", carried);
    if (!p || !(a = attribute(g, "body", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)))
        return "";
    a->g = p;
    return out;
}

/* ---- the model ---- */

static void opset(Onnx__OperatorSetIdProto *p, char *domain, int64_t version)
{
    onnx__operator_set_id_proto__init(p);
    p->domain = domain;
    p->has_version = 1;
    p->version = version;
}

static int pack(const Onnx__ModelProto *model, uint8_t **out, size_t *bytes, struct error *e)
{
    *bytes = onnx__model_proto__get_packed_size(model);
    if (*bytes > INT_MAX)
        return error_set(e, ERR_MODEL,
                         "the ONNX graph would take %.1f GB; protobuf has room for 2.1",
                         (double)*bytes / 1e9);
    if (!(*out = mem_alloc(*bytes, 1)))
        return error_set(e, ERR_MEMORY, "out of memory for the ONNX graph");
    onnx__model_proto__pack(model, *out);
    return 0;
}

int onnx_graph_write(struct onnx_graph *g, const char *name, uint8_t **out, size_t *bytes,
                     struct error *e)
{
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__OperatorSetIdProto sets[1 + DOMAINS], *all[1 + DOMAINS];
    char producer[] = "moetop", version[] = MOETOP_VERSION, none[] = "";

    *out = NULL;
    if (g->failed || !(graph.name = text(g, name)))
        return error_set(e, ERR_MEMORY, "out of memory for the ONNX graph");
    opset(&sets[0], none, ONNX_OPSET);
    for (int i = 0; i < g->n_domains; i++)
        opset(&sets[1 + i], g->domains[i], 1);
    for (int i = 0; i <= g->n_domains; i++)
        all[i] = &sets[i];
    graph.n_node = g->nodes.n;
    graph.node = (Onnx__NodeProto **)g->nodes.items;
    graph.n_initializer = g->tensors.n;
    graph.initializer = (Onnx__TensorProto **)g->tensors.items;
    graph.n_input = g->inputs.n;
    graph.input = (Onnx__ValueInfoProto **)g->inputs.items;
    graph.n_output = g->outputs.n;
    graph.output = (Onnx__ValueInfoProto **)g->outputs.items;
    model.has_ir_version = 1;
    model.ir_version = ONNX_IR;
    model.producer_name = producer;
    model.producer_version = version;
    model.n_opset_import = 1 + (size_t)g->n_domains;
    model.opset_import = all;
    model.graph = &graph;
    return pack(&model, out, bytes, e);
}
