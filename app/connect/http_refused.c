/* What an unsuccessful answer says, in one line: the servers' own words, or those of the proxy in
 * front of them (http.h). Pure; any thread. */
#include "app/connect/http.h"
#include "engine/base/json.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool http_error_text(const char *body, size_t n, char *out, size_t size)
{
    json_t *root = n ? json_loadb(body, n, JSON_ALLOW_NUL, NULL) : NULL;
    static const char *const places[] = {"error.message", "error",        "message",
                                         "detail",        "detail.0.msg", "error.0.message"};
    const char *text = NULL;

    for (size_t i = 0; !text && i < sizeof places / sizeof *places; i++)
        text = json_string_value(json_walk(root, places[i]));
    if (text)
        snprintf(out, size, "%s", text);
    json_decref(root);
    return text != NULL;
}

/* The text between <title> and </title>, its blanks joined; false: none. */
static bool page_title(const char *body, char *out, size_t size)
{
    const char *from = strcasestr(body, "<title"), *to;
    size_t n = 0;

    from = from ? strchr(from, '>') : NULL;
    to = from ? strcasestr(from, "</title") : NULL;
    if (!to)
        return false;
    for (const char *p = from + 1; p < to && n + 1 < size; p++)
        if (!isspace((unsigned char)*p))
            out[n++] = *p;
        else if (n && out[n - 1] != ' ')
            out[n++] = ' ';
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = 0;
    return n > 0;
}

/* The first line of a short text; false: none. */
static bool first_line(const char *body, char *out, size_t size)
{
    body += strspn(body, " \t\r\n");
    snprintf(out, size, "%.*s", (int)strcspn(body, "\r\n"), body);
    return *out != 0;
}

/* What a proxy says instead of the server: the title of a page, or a line of text. */
static bool proxy_text(const struct http_call *c, char *out, size_t size)
{
    const char *body = strbuf_text(&c->text);

    if (strcasecmp(c->type, "text/html") == 0 || *body == '<')
        return page_title(body, out, size);
    return strcasecmp(c->type, "text/plain") == 0 && first_line(body, out, size);
}

const char *http_body_words(const struct http_call *c, char *out, size_t size)
{
    char own[120];

    if (proxy_text(c, own, sizeof own))
        snprintf(out, size, "%s (%s)", *c->type ? c->type : "text", own);
    else
        snprintf(out, size, "%s", *c->type ? c->type : "of no type");
    return out;
}

int http_refused(const struct http_server *s, const struct http_call *c, struct error *e)
{
    char own[300] = "", later[60] = "";
    bool said = http_error_text(strbuf_text(&c->text), c->text.len, own, sizeof own) ||
                proxy_text(c, own, 120);
    int code = c->status == 404                       ? ERR_MODEL
               : c->status >= 500 || c->status == 429 ? ERR_IO
                                                      : ERR_INPUT;

    if (c->status == 401 || c->status == 403)
        return error_set(e, ERR_USAGE, "%s refuses (HTTP %ld)%s%s: %s", s->base, c->status,
                         said ? ": " : "", own,
                         *s->key ? "the key in --api-key-file is not accepted"
                                 : "give its key with --api-key-file");
    if (c->status >= 300 && c->status < 400 && *c->elsewhere)
        return error_set(e, ERR_IO,
                         "%s answers HTTP %ld: it is somewhere else; if you trust that place, give "
                         "its address: --connect %s",
                         s->base, c->status, c->elsewhere);
    if (c->status == 400 && strstr(own, "context"))
        code = ERR_CONTEXT;
    if (c->retry_after > 0)
        snprintf(later, sizeof later, "; it asks to come again in %ld s", c->retry_after);
    return error_set(e, code, "%s answers HTTP %ld%s%s%s", s->base, c->status, said ? ": " : "",
                     own, later);
}
