/* See grammar_options.h. */
#include "app/setup/grammar_options.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <string.h>

typedef int make_fn(struct grammar **out, const char *text, size_t n, struct error *e);

/* 1: the option is set; 0: it is not, or is `off`. */
static int make(make_fn *from, const char *text, const char *path, struct grammar **out,
                struct error *e)
{
    static const struct file_kind kind = {"grammar or schema", GRAMMAR_BYTES, ERR_USAGE};
    bool given = text && *text;
    char *read = NULL;
    size_t n = 0;
    int rc;

    if (given ? strcmp(text, "off") == 0 : !path || !*path)
        return 0;
    if (!given && (rc = file_read(path, &kind, &read, &n, e)) < 0)
        return rc;
    rc = from(out, given ? text : read, given ? strlen(text) : n, e);
    mem_free(read);
    if (rc == ERR_INPUT)
        e->code = rc = ERR_USAGE;
    return rc < 0 ? rc : 1;
}

int grammar_from_options(const struct options *o, struct grammar **out, struct error *e)
{
    int rc;

    *out = NULL;
    rc = make(grammar_from_schema, o->json_schema, o->json_schema_file, out, e);
    if (rc == 0)
        rc = make(grammar_from_gbnf, o->grammar, o->grammar_file, out, e);
    return rc < 0 ? rc : 0;
}
