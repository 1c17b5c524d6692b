/* See result.h. */
#include "app/mcp/result.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A text that is being made, of which only the beginning is kept. */
struct writer {
    struct strbuf text;
    size_t most, all; /* bytes kept at most; bytes there were */
};

/* Keeps what fits. NULs would end the text early. */
static void put(struct writer *w, const char *text, size_t n)
{
    size_t room = w->all < w->most ? w->most - w->all : 0, part = n < room ? n : room;

    w->all += n;
    for (size_t i = 0; i < part;) {
        size_t run = strnlen(text + i, part - i);

        strbuf_put(&w->text, text + i, run);
        if ((i += run) < part) {
            strbuf_puts(&w->text, "\xef\xbf\xbd");
            i++;
        }
    }
}

static void put_string(struct writer *w, const json_t *v)
{
    if (json_is_string(v))
        put(w, json_string_value(v), json_string_length(v));
}

static void put_json(struct writer *w, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);

    if (text)
        put(w, text, strlen(text));
    else
        w->text.failed = true;
    free(text); /* allocated by jansson */
}

/* "[image image/png, 12345 bytes of base64]": what a model that reads text cannot be given. */
static void put_data(struct writer *w, const char *what, const json_t *item, const char *key)
{
    const char *type = json_string_value(json_object_get(item, "mimeType"));
    char note[160];
    int n = snprintf(note, sizeof note, "[%s%s%.60s, %zu bytes in base64, left out]", what,
                     type ? " " : "", type ? type : "",
                     json_string_length(json_object_get(item, key)));

    put(w, note, n < (int)sizeof note ? (size_t)n : sizeof note - 1);
}

static void put_link(struct writer *w, const json_t *item)
{
    put(w, "[", 1);
    put_string(w, json_object_get(item, "name"));
    put(w, ": ", 2);
    put_string(w, json_object_get(item, "uri"));
    put(w, "]", 1);
}

/* One element of "content". */
static void put_item(struct writer *w, const json_t *item)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    const json_t *resource = json_object_get(item, "resource");

    if (type && strcmp(type, "text") == 0)
        put_string(w, json_object_get(item, "text"));
    else if (type && (strcmp(type, "image") == 0 || strcmp(type, "audio") == 0))
        put_data(w, type, item, "data");
    else if (type && strcmp(type, "resource_link") == 0)
        put_link(w, item);
    else if (json_is_string(json_object_get(resource, "text")))
        put_string(w, json_object_get(resource, "text"));
    else if (json_is_object(resource))
        put_data(w, "resource", resource, "blob");
    else
        put_json(w, item);
}

static void put_result(struct writer *w, const json_t *result)
{
    const json_t *content = json_object_get(result, "content"), *item;
    const json_t *structured = json_object_get(result, "structuredContent");
    size_t i;

    json_array_foreach(content, i, item)
    {
        if (i)
            put(w, "\n", 1);
        put_item(w, item);
    }
    if (!json_array_size(content) && structured)
        put_json(w, structured);
}

char *mcp_result_text(const json_t *result, size_t most)
{
    struct writer w = {.most = most};
    char *text;

    strbuf_puts(&w.text, "");
    put_result(&w, result);
    if (w.all > most) {
        w.text.len -= utf8_incomplete(w.text.data, w.text.len);
        strbuf_printf(&w.text, "\n[cut here: %zu of %zu bytes]", most, w.all);
    }
    text = strbuf_take(&w.text, NULL);
    strbuf_release(&w.text);
    return text;
}

void mcp_line(char *out, size_t size, const char *text)
{
    utf8_escape(out, size, text, strlen(text), 0);
}
