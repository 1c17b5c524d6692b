/* See access.h. */
#include "app/serve/http/access.h"

#include "engine/base/mapping.h"
#include "engine/base/mem.h"

#include <string.h>
#include <strings.h>

#define KEY_MOST 256 /* bytes */

struct access {
    char (*keys)[KEY_MOST]; /* zero-padded */
    size_t n_keys;
    char *host; /* --host: accepted as Host too */
    struct option_list hosts, origins;
    bool any_host; /* accept any Host: others may use unknown names; they need a key */
};

static int copy_list(struct option_list *to, const struct option_list *from, struct error *e)
{
    if (!from->n)
        return 0;
    to->items = mem_alloc(from->n, sizeof *to->items);
    for (size_t i = 0; to->items && i < from->n; i++, to->n++)
        if (!(to->items[i] = mem_string(from->items[i])))
            return error_set(e, ERR_MEMORY, "out of memory for the options");
    return to->items ? 0 : error_set(e, ERR_MEMORY, "out of memory for the options");
}

static int add_key(struct access *a, const char *text, size_t n, const char *path, size_t line,
                   struct error *e)
{
    if (n >= KEY_MOST)
        return error_set(e, ERR_USAGE, "%s:%zu: a key has at most %d bytes", path, line,
                         KEY_MOST - 1);
    if (!MEM_FIT(a->keys, a->n_keys + 1))
        return error_set(e, ERR_MEMORY, "out of memory for the keys");
    memset(a->keys[a->n_keys], 0, KEY_MOST);
    memcpy(a->keys[a->n_keys++], text, n);
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int read_keys(struct access *a, const char *path, struct error *e)
{
    struct mapping m = {0};
    int rc = mapping_open(&m, path, e);
    const char *at = (const char *)m.data, *end = at + m.size;

    for (size_t line = 1; rc == 0 && at < end; line++) {
        const char *next = memchr(at, '\n', (size_t)(end - at)), *last = next ? next : end;

        while (at < last && is_blank(*at))
            at++;
        while (last > at && is_blank(last[-1]))
            last--;
        if (at < last && *at != '#')
            rc = add_key(a, at, (size_t)(last - at), path, line, e);
        at = next ? next + 1 : end;
    }
    mapping_close(&m);
    if (rc == 0 && !a->n_keys)
        rc = error_set(e, ERR_USAGE, "%s holds no key: write one a line", path);
    return rc;
}

int access_open(struct access **out, const struct options *o, bool loopback, struct error *e)
{
    struct access *a = mem_alloc(1, sizeof *a);
    int rc = 0;

    *out = a;
    if (!a)
        return error_set(e, ERR_MEMORY, "out of memory for the keys");
    if (o->api_key_file && (rc = read_keys(a, o->api_key_file, e)) < 0)
        return error_prefix(e, "--api-key-file");
    if (!loopback && !a->n_keys)
        return error_set(e, ERR_USAGE,
                         "--host %s: others could reach the server; give it a key with "
                         "--api-key-file FILE",
                         o->host);
    a->any_host = !loopback;
    a->host = mem_string(o->host);
    if ((rc = copy_list(&a->origins, &o->allow_origin, e)) < 0)
        return rc;
    return copy_list(&a->hosts, &o->allow_host, e);
}

static void release_list(struct option_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->items[i]);
    mem_free(l->items);
}

void access_close(struct access *a)
{
    if (!a)
        return;
    mem_free(a->keys);
    mem_free(a->host);
    release_list(&a->hosts);
    release_list(&a->origins);
    mem_free(a);
}

/* ---- keys ---- */

static bool same_key(const char *key, const char given[KEY_MOST])
{
    unsigned char differ = 0;

    for (size_t i = 0; i < KEY_MOST; i++)
        differ |= (unsigned char)(key[i] ^ given[i]);
    return differ == 0;
}

int access_check_key(const struct access *a, const struct access_headers *h, struct refusal *r)
{
    const char *given = h->api_key;
    char padded[KEY_MOST] = {0};
    bool known = false;

    if (!a->n_keys)
        return 0;
    if (h->authorization && strncasecmp(h->authorization, "Bearer ", 7) == 0)
        given = h->authorization + 7;
    if (given && strlen(given) < KEY_MOST)
        memcpy(padded, given, strlen(given));
    for (size_t i = 0; i < a->n_keys; i++)
        known |= same_key(a->keys[i], padded);
    if (known && padded[0])
        return 0;
    return refuse(r, 401, "invalid_api_key", NULL,
                  given ? "this key is not known here"
                        : "a key is needed: send it as Authorization: Bearer KEY");
}

/* ---- browsers ---- */

/* The name before a port, without the brackets of an IPv6 address. */
static size_t name_of(const char **host)
{
    const char *end;

    if (**host == '[') {
        ++*host;
        end = strchr(*host, ']');
        return end ? (size_t)(end - *host) : 0;
    }
    end = strchr(*host, ':');
    return end ? (size_t)(end - *host) : strlen(*host);
}

static bool is_name(const char *text, size_t n, const char *name)
{
    return name && strlen(name) == n && strncasecmp(text, name, n) == 0;
}

static bool knows_host(const struct access *a, const char *host)
{
    static const char *const own[] = {"localhost", "127.0.0.1", "::1"};
    size_t n = name_of(&host);
    bool known = is_name(host, n, a->host);

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        known |= is_name(host, n, own[i]);
    for (size_t i = 0; i < a->hosts.n; i++)
        known |= is_name(host, n, a->hosts.items[i]);
    return known;
}

const char *access_origin(const struct access *a, const char *origin)
{
    for (size_t i = 0; origin && i < a->origins.n; i++)
        if (strcasecmp(origin, a->origins.items[i]) == 0)
            return a->origins.items[i];
    return NULL;
}

int access_check_browser(const struct access *a, const struct access_headers *h, struct refusal *r)
{
    if (h->host && !a->any_host && !knows_host(a, h->host))
        return refuse(r, 403, "host_not_allowed", NULL,
                      "the Host %.100s is not this server's; --allow-host NAME allows it", h->host);
    if (h->origin && !access_origin(a, h->origin))
        return refuse(r, 403, "origin_not_allowed", NULL,
                      "pages of %.100s may not ask; --allow-origin ORIGIN allows them", h->origin);
    return 0;
}
