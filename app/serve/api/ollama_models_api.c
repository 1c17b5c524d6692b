/* Ollama's lists of models: /api/tags, /api/ps, /api/show; its version; and what is refused.
 * Request threads: files are opened for what is said of them. */
#include "app/serve/api/apis.h"
#include "app/serve/api/ollama_time.h"
#include "app/serve/api/text_json.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/model_registry.h"
#include "app/serve/common/route.h"
#include "app/serve/common/server.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/request/fields.h"
#include "app/serve/request/request_fields.h"

#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"
#include "engine/text/chat_template.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OLLAMA_VERSION "0.13.0" /* of the API that these routes follow; clients compare it */
#define SHOWN_MOST 4096         /* elements of an array, with "verbose" */

/* ---- a model's file ---- */

/* Size and time; of a folder the sum of its files and the newest of them. */
static uint64_t size_of(const char *path, struct timespec *changed)
{
    struct dirent *each;
    uint64_t bytes = 0;
    struct stat st;
    DIR *d;

    if (stat(path, &st) < 0)
        return 0;
    *changed = st.st_mtim;
    if (!S_ISDIR(st.st_mode) || !(d = opendir(path)))
        return (uint64_t)st.st_size;
    while ((each = readdir(d)))
        if (fstatat(dirfd(d), each->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) {
            bytes += (uint64_t)st.st_size;
            if (st.st_mtim.tv_sec > changed->tv_sec)
                *changed = st.st_mtim;
        }
    closedir(d);
    return bytes;
}

/* Names the file in this state: hashing gigabytes for a list would take minutes. */
static json_t *digest_of(const char *path, uint64_t bytes, struct timespec changed)
{
    char text[64], hex[DIGEST_HEX];
    struct digest d;

    snprintf(text, sizeof text, " %llu %lld.%09ld", (unsigned long long)bytes,
             (long long)changed.tv_sec, changed.tv_nsec);
    digest_init(&d, DIGEST_SHA256, 0);
    digest_add(&d, path, strlen(path));
    digest_add(&d, text, strlen(text));
    digest_end(&d, hex);
    return json_string(hex);
}

/* "7.2B" */
static json_t *count_text(double n)
{
    return n >= 1e9   ? json_sprintf("%.1fB", n / 1e9)
           : n >= 1e6 ? json_sprintf("%.1fM", n / 1e6)
                      : json_sprintf("%.0fK", n / 1e3);
}

/* Numbers of all tensors, and the type that most of them have. */
static double count(const struct weight_file *f, const char **type)
{
    double by_type[DTYPE_COUNT] = {0}, all = 0;
    int most = 0;

    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        double n = 1;

        for (int k = 0; k < t->n_dims; k++)
            n *= (double)t->dims[k];
        by_type[t->type] += n;
        all += n;
    }
    for (int i = 1; i < DTYPE_COUNT; i++)
        if (by_type[i] > by_type[most])
            most = i;
    *type = all > 0 ? dtype_info((enum dtype)most)->word : "";
    return all;
}

static json_t *architecture(const struct weight_file *f)
{
    struct meta_value v = weight_file_meta(f, "general.architecture");

    if (v.type != META_STRING)
        v = weight_file_meta(f, "model_type");
    return v.type == META_STRING ? text_json(v.s, v.len) : json_string("");
}

/* f NULL: it cannot be opened. */
static json_t *details(const struct weight_file *f)
{
    const char *type = "";
    double n = f ? count(f, &type) : 0;
    char level[16];
    json_t *family = f ? architecture(f) : json_string("");

    snprintf(level, sizeof level, "%s", type);
    for (char *c = level; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return json_pack("{s:s, s:s, s:O, s:[o], s:o, s:s}", "parent_model", "", "format",
                     f && weight_file_format(f) == WEIGHT_SAFETENSORS ? "safetensors" : "gguf",
                     "family", family, "families", family, "parameter_size",
                     f ? count_text(n) : json_string(""), "quantization_level", level);
}

/* NULL: it cannot be opened. */
static struct weight_file *open_file(const char *path)
{
    struct weight_file *f = NULL;
    struct error ignored = {0};

    return weight_file_open(&f, path, true, &ignored) == 0 ? f : NULL;
}

static json_t *model_json(const struct server *s, size_t i)
{
    const char *path = registry_path(s->registry, i);
    struct weight_file *f = open_file(path);
    struct timespec changed = {0};
    uint64_t bytes = size_of(path, &changed);
    char latest[512];
    json_t *name, *o;

    snprintf(latest, sizeof latest, "%s:latest", registry_id(s->registry, i));
    name = text_json(latest, strlen(latest));

    o = json_pack("{s:O, s:o, s:o, s:I, s:o, s:o}", "name", name, "model", name, "modified_at",
                  ollama_time(changed), "size", (json_int_t)bytes, "digest",
                  digest_of(path, bytes, changed), "details", details(f));
    weight_file_close(f);
    return o;
}

void api_ollama_tags(struct exchange *x)
{
    json_t *list = json_array();

    for (size_t i = 0; registry_id(x->server->registry, i); i++)
        json_array_append_new(list, model_json(x->server, i));
    reply_json(x, 200, json_pack("{s:o}", "models", list));
}

/* Bytes of weights on devices other than the CPU. */
static void add_moved(void *ctx, const struct telemetry *t)
{
    for (int i = 1; i < t->n_devices; i++)
        *(uint64_t *)ctx += t->devices[i].weight_bytes;
}

/* When the loaded model is unloaded, if nobody asks before; one that stays does in three centuries,
 * as Ollama's do. */
static json_t *expires_at(const struct server *s)
{
    uint64_t at = registry_expires(s->registry), now = clock_now(), left = at > now ? at - now : 0;
    struct timespec t;

    if (!at)
        return json_string("2318-01-01T00:00:00Z");
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)(left / CLOCK_SECOND);
    return ollama_time(t);
}

void api_ollama_ps(struct exchange *x)
{
    const struct server *s = x->server;
    const struct engine_info *info = server_info(s);
    json_t *list = json_array(), *o;
    uint64_t moved = 0;

    if (server_ready(s, &(struct refusal){0}) == 0 && info) {
        o = model_json(s, (size_t)registry_loaded(s->registry));
        json_object_set_new(o, "expires_at", expires_at(s));
        server_status_telemetry(s->status, add_moved, &moved);
        json_object_set_new(o, "size_vram", json_integer((json_int_t)moved));
        json_object_set_new(o, "context_length", json_integer(info->context));
        json_array_append_new(list, o);
    }
    reply_json(x, 200, json_pack("{s:o}", "models", list));
}

/* ---- /api/show ---- */

static json_t *value_json(struct meta_value v, bool verbose)
{
    json_t *list;

    switch (v.type) {
    case META_INT: return json_integer((json_int_t)v.i);
    case META_FLOAT: return json_real(v.f);
    case META_BOOL: return json_boolean(v.i);
    case META_STRING: return text_json(v.s, v.len);
    case META_ARRAY:
        if (!verbose)
            return json_null();
        list = json_array();
        for (size_t i = 0; i < v.len && i < SHOWN_MOST; i++)
            json_array_append_new(list, value_json(meta_at(&v, i), false));
        return list;
    case META_NONE: break;
    }
    return json_null();
}

/* GGUF's metadata by its keys; of a folder the architecture alone. */
static json_t *model_info(const struct weight_file *f, bool verbose)
{
    json_t *o = json_object();
    const char *key, *type;
    size_t bytes, n;
    const void *entry;

    json_object_set_new(o, "general.architecture", architecture(f));
    json_object_set_new(o, "general.parameter_count", json_integer((json_int_t)count(f, &type)));
    for (size_t i = 0; weight_file_entry(f, i, &key, &bytes, &entry, &n); i++) {
        char name[256];
        json_t *v;

        if (bytes >= sizeof name || (bytes > 14 && memcmp(key, "tokenizer.chat", 14) == 0))
            continue;
        memcpy(name, key, bytes);
        name[bytes] = 0;
        v = value_json(weight_file_meta(f, name), verbose);
        json_object_set_new(o, name, v ? v : json_null());
    }
    return o;
}

/* What the loaded model's template can do; of others nothing is known before they are loaded. */
static json_t *capabilities(const struct engine_info *info)
{
    json_t *list = json_pack("[s]", "completion");
    const struct chat_template *chat = info ? info->chat : NULL;

    if (!chat)
        return list;
    json_array_append_new(list, json_string("tools")); /* by its template, or in Hermes' form */
    if (chat_template_asks(chat, "enable_thinking") || chat_template_asks(chat, "thinking") ||
        chat_template_asks(chat, "reasoning_effort"))
        json_array_append_new(list, json_string("thinking"));
    return list;
}

static json_t *template_of(const struct engine_info *info, const struct weight_file *f)
{
    struct meta_value v = weight_file_meta(f, "tokenizer.chat_template");

    if (info && info->chat)
        return json_string(chat_template_source(info->chat));
    return v.type == META_STRING ? text_json(v.s, v.len) : json_string("");
}

/* "FROM model.gguf": no more of where it lies than its name. */
static json_t *modelfile_of(const char *path)
{
    char text[512];

    snprintf(text, sizeof text, "# served by moetop\nFROM %s", path_name(path));
    return text_json(text, strlen(text));
}

static json_t *parameters_of(const struct server *s)
{
    const struct sampling *v = &s->sampling;

    return json_sprintf("temperature %g\ntop_k %d\ntop_p %g\nmin_p %g\nrepeat_penalty %g",
                        (double)v->temperature, v->top_k, (double)v->top_p, (double)v->min_p,
                        (double)v->repeat_penalty);
}

static int show(const struct exchange *x, const json_t *body, json_t **out, struct refusal *r)
{
    const struct server *s = x->server;
    const char *name = json_string_value(field_get(body, "model")), *path;
    struct timespec changed = {0};
    struct weight_file *f;
    const struct engine_info *info;
    int i;

    if (!name)
        name = json_string_value(field_get(body, "name")); /* earlier versions' */
    if (!name)
        return refuse(r, 400, "missing_required_parameter", "model", "'model' is missing");
    i = registry_find(s->registry, name);
    if (i < 0)
        return refuse(r, 404, "model_not_found", "model", "model '%.200s' not found", name);
    path = registry_path(s->registry, (size_t)i);
    if (!(f = open_file(path)))
        return refuse(r, 500, "model_not_loaded", "model", "the model '%.200s' cannot be opened",
                      name);
    info = i == registry_loaded(s->registry) && server_ready(s, &(struct refusal){0}) == 0
               ? server_info(s)
               : NULL;
    size_of(path, &changed);
    *out = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "license", "", "modelfile",
                     modelfile_of(path), "parameters", parameters_of(s), "template",
                     template_of(info, f), "details", details(f), "model_info",
                     model_info(f, json_is_true(field_get(body, "verbose"))), "capabilities",
                     capabilities(info), "modified_at", ollama_time(changed));
    weight_file_close(f);
    return 0;
}

void api_ollama_show(struct exchange *x)
{
    struct refusal why = {0};
    json_t *body = request_json(x, &why), *o = NULL;

    if (body && show(x, body, &o, &why) == 0)
        reply_json(x, 200, o);
    else
        reply_refusal(x, &why);
    json_decref(body);
}

/* ---- the rest ---- */

void api_ollama_version(struct exchange *x)
{
    reply_json(x, 200,
               json_pack("{s:s, s:s}", "version", OLLAMA_VERSION, "moetop", MOETOP_VERSION));
}

/* Ollama's programs ask whether somebody is there. */
void api_root(struct exchange *x)
{
    static const char here[] = "moetop is running\n";

    reply_text(x, 200, "text/plain; charset=utf-8", here, strlen(here));
}

void api_ollama_refused(struct exchange *x)
{
    struct refusal why;

    refuse(&why, 501, "not_supported", NULL,
           "%s is not supported: the models of this server are files; add them to a folder of "
           "--models-dir",
           x->route->path);
    reply_refusal(x, &why);
}
