/* See hub_files.h. */
#include "app/fetch/hub_files.h"

#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/strbuf.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
#define FILES_MOST 100000

/* ---- names ---- */

static bool name_part(const char *text, size_t n)
{
    return n && strspn(text, LETTERS) >= n && text[0] != '.' && text[0] != '-';
}

int hub_name_parse(const char *text, struct hub_name *out, struct error *e)
{
    size_t user = strcspn(text, "/:"), repo = text[user] ? strcspn(text + user + 1, "/:") : 0;
    const char *end = text + user + 1 + repo;

    *out = (struct hub_name){0};
    if (text[user] != '/' || !name_part(text, user) || !name_part(text + user + 1, repo) ||
        user + repo + 2 > sizeof out->repo || strstr(text, "..") ||
        (*end && (*end != ':' || !name_part(end + 1, strlen(end + 1)) ||
                  strlen(end + 1) >= sizeof out->quant)))
        return error_set(e, ERR_USAGE,
                         "-hf %s: give it as USER/REPO or USER/REPO:QUANT, such as "
                         "ggml-org/models:Q4_K_M",
                         text);
    snprintf(out->repo, sizeof out->repo, "%.*s", (int)(user + 1 + repo), text);
    snprintf(out->quant, sizeof out->quant, "%s", *end ? end + 1 : "");
    return 0;
}

/* Checks that the path stays below its folder, and is safe to print. */
static bool path_is_safe(const char *path)
{
    if (!*path || *path == '/' || strlen(path) > 500)
        return false;
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '\\')
            return false;
    for (const char *p = path; p; p = strchr(p, '/')) {
        size_t n;

        p += *p == '/';
        n = strcspn(p, "/");
        if (n == 0 || (n == 1 && *p == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
    }
    return true;
}

static bool is_hash(const char *text, size_t n)
{
    return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);

    return n >= m && strcasecmp(text + n - m, with) == 0;
}

/* ---- the listing ---- */

static bool read_file(struct hub_file *f, const json_t *entry)
{
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *path = json_string_value(json_object_get(entry, "rfilename"));
    const char *sha256 = json_string_value(json_object_get(lfs, "sha256"));
    const char *blob = json_string_value(json_object_get(entry, "blobId"));
    const json_t *size = json_object_get(json_is_object(lfs) ? lfs : entry, "size");
    bool large = json_is_object(lfs);

    if (!path || !path_is_safe(path) || !json_is_integer(size) || json_integer_value(size) < 0 ||
        !(large ? is_hash(sha256, 64) : is_hash(blob, 40)))
        return false;
    f->bytes = (uint64_t)json_integer_value(size);
    f->kind = large ? DIGEST_SHA256 : DIGEST_GIT_SHA1;
    snprintf(f->hash, sizeof f->hash, "%s", large ? sha256 : blob);
    return (f->path = mem_string(path)) != NULL;
}

int hub_files_order(const void *a, const void *b)
{
    return strcmp(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

int hub_files_read(struct hub_files *f, const json_t *answer, struct error *e)
{
    const char *commit = json_string_value(json_object_get(answer, "sha"));
    const json_t *list = json_object_get(answer, "siblings");
    size_t n = json_array_size(list);

    if (!is_hash(commit, 40) || !json_is_array(list) || n > FILES_MOST)
        return error_set(e, ERR_INPUT, "no listing of a repository came back");
    if (n && !(f->file = mem_alloc(n, sizeof *f->file)))
        return error_set(e, ERR_MEMORY, "out of memory for the list of files");
    snprintf(f->commit, sizeof f->commit, "%s", commit);
    for (size_t i = 0; i < n; i++)
        if (read_file(&f->file[f->n], json_array_get(list, i)))
            f->n++;
    if (f->n)
        qsort(f->file, f->n, sizeof *f->file, hub_files_order);
    return 0;
}

void hub_files_release(struct hub_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        mem_free(f->file[i].path);
    mem_free(f->file);
    *f = (struct hub_files){0};
}

/* ---- the choice ---- */

size_t hub_file_part(const char *path, int *number, int *count)
{
    static const char form[] = "-#####-of-#####.";
    size_t n = strlen(path);
    const char *dot = strrchr(path, '.'), *at;

    *number = *count = 1;
    if (!dot || (size_t)(dot - path) < sizeof form - 1)
        return n;
    at = dot - (sizeof form - 2); /* includes the final dot */
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '#' ? !isdigit((unsigned char)at[i]) : at[i] != form[i])
            return n;
    *number = atoi(at + 1);
    *count = atoi(at + 10);
    return (size_t)(at - path);
}

bool hub_file_is_quant(const char *path, const char *quant)
{
    const char *name = path_name(path);
    size_t n = strlen(quant);

    if (!ends(name, ".gguf") || strcasestr(name, "mmproj") || strcasestr(name, "imatrix"))
        return false;
    if (!n)
        return true;
    /* delimited by dots, hyphens or slashes: Q4_K does not match Q4_K_M */
    for (const char *p = path; (p = strcasestr(p, quant)); p++)
        if ((p == path || strchr("./-", p[-1])) && strchr("./-", p[n]) && p[n])
            return true;
    return false;
}

/* The first file of a quant; NULL: none. */
static struct hub_file *find_quant(const struct hub_files *f, const char *quant)
{
    for (size_t i = 0; i < f->n; i++)
        if (hub_file_is_quant(f->file[i].path, quant))
            return &f->file[i];
    return NULL;
}

/* Marks the file and, if it begins a split model, all its parts. */
static int want_parts(struct hub_files *f, const struct hub_file *first, struct error *e)
{
    int number, count, found = 0, n, of;
    size_t stem = hub_file_part(first->path, &number, &count);

    for (size_t i = 0; i < f->n; i++) {
        struct hub_file *x = &f->file[i];

        if (x == first || (hub_file_part(x->path, &n, &of) == stem && of == count && count > 1 &&
                           ends(x->path, ".gguf") && strncmp(x->path, first->path, stem) == 0)) {
            x->wanted = true;
            found++;
        }
    }
    if (number != 1 || found != count)
        return error_set(e, ERR_MODEL, "%s: the repository holds %d of its %d parts", first->path,
                         found, count);
    return 0;
}

static void list_quants(const struct hub_files *f, struct strbuf *out)
{
    for (size_t i = 0; i < f->n && out->len < 240; i++) {
        int number, count;

        hub_file_part(f->file[i].path, &number, &count);
        if (hub_file_is_quant(f->file[i].path, "") && number == 1)
            strbuf_printf(out, "%s%s", out->len ? ", " : "", f->file[i].path);
    }
}

static bool folder_wants(const char *path, bool sharded)
{
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        "model.safetensors.index.json",
        "1_Pooling/config.json",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0)
            return true;
    /* some repositories contain the weights twice, also as consolidated.safetensors */
    return ends(path, ".safetensors") && (!sharded || strncmp(path, "model", 5) == 0);
}

static int want_folder(struct hub_files *f, struct error *e)
{
    bool config = false, weights = false, named = false;

    for (size_t i = 0; i < f->n; i++)
        named |= strncmp(f->file[i].path, "model", 5) == 0 && ends(f->file[i].path, ".safetensors");
    for (size_t i = 0; i < f->n; i++) {
        struct hub_file *x = &f->file[i];

        x->wanted = folder_wants(x->path, named);
        config |= strcmp(x->path, "config.json") == 0;
        weights |= x->wanted && ends(x->path, ".safetensors");
    }
    if (config && weights)
        return 0;
    return error_set(e, ERR_MODEL,
                     "the repository holds neither a GGUF file nor config.json with "
                     "safetensors: moetop reads no other");
}

int hub_files_choose(struct hub_files *f, const struct hub_name *name, const char **main,
                     struct error *e)
{
    static const char *const usual[] = {"Q4_K_M", "Q8_0", ""};
    const struct hub_file *first = NULL;
    struct strbuf there = {0};
    int rc;

    if (*name->quant) {
        first = find_quant(f, name->quant);
    } else {
        for (size_t i = 0; !first && i < sizeof usual / sizeof *usual; i++)
            first = find_quant(f, usual[i]);
    }
    *main = "";
    if (first) {
        *main = first->path;
        return want_parts(f, first, e);
    }
    if (!*name->quant)
        return want_folder(f, e);
    list_quants(f, &there);
    rc = error_set(e, ERR_MODEL, "there is no GGUF file of %s; there is %s", name->quant,
                   there.data ? there.data : "none at all: leave :QUANT away for the folder");
    strbuf_release(&there);
    return rc;
}
