/* A report as one HTML page with its drawings in it; see report.h. */
#include "app/lab/report.h"

#include "app/lab/report_drawings.h"
#include "engine/base/file.h"
#include "engine/base/path.h"
#include "engine/base/strbuf.h"

#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n"
    "<meta name=viewport content=\"width=device-width\">\n<title>moetop: routing</title>\n"
    "<style>:root{color-scheme:light dark}body{font:16px/1.5 sans-serif;max-width:70rem;"
    "margin:2rem auto;padding:0 1rem}pre{font:13px/1.4 monospace;overflow-x:auto}"
    "svg{max-width:100%;height:auto;background:#fff;display:block;margin:1rem 0}</style>\n";

static void put_html(struct strbuf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        switch (s[i]) {
        case '<': strbuf_puts(b, "&lt;"); break;
        case '>': strbuf_puts(b, "&gt;"); break;
        case '&': strbuf_puts(b, "&amp;"); break;
        default: strbuf_putc(b, s[i]);
        }
}

/* The drawings of a trace, or of both (-1). */
static void put_drawings(struct strbuf *b, const struct report_drawings *d, int of)
{
    for (int i = 0; i < d->n; i++)
        if (d->items[i].of == of)
            strbuf_puts(b, d->items[i].svg);
}

int report_page_write(const char *path, const struct trace_report *r, size_t n,
                      const struct trace_comparison *c, const struct report_drawings *d,
                      struct error *e)
{
    struct strbuf b = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    int rc;

    if (f) {
        report_text(f, r, n, c);
        fclose(f);
    }
    strbuf_puts(&b, head);
    strbuf_puts(&b, "<h1>Routing of a mixture of experts</h1>\n");
    for (size_t i = 0; i < n; i++) {
        const char *name = path_name(r[i].trace->path);

        strbuf_puts(&b, "<h2>");
        put_html(&b, name, strlen(name));
        strbuf_puts(&b, "</h2>\n");
        put_drawings(&b, d, (int)i);
    }
    if (c && c->common && c->n_layers > 1) {
        strbuf_puts(&b, "<h2>Both</h2>\n");
        put_drawings(&b, d, -1);
    }
    strbuf_puts(&b, "<h2>Figures</h2>\n<pre>");
    put_html(&b, text, size);
    strbuf_puts(&b, "</pre>\n<p>Formulas: moetop-lab(7).</p>\n</html>\n");
    rc = b.failed || !text ? error_set(e, ERR_MEMORY, "out of memory for the page")
                           : file_replace(path, b.data, b.len, e);
    free(text); /* the C library's */
    strbuf_release(&b);
    return rc;
}
