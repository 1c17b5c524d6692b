/* See token_shapes.h. */
#include "gpu/shapes/token_shapes.h"
#include "engine/base/cache.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "moetop work-groups 2"
#define MOST 65536
#define CLEARLY 0.95 /* of the time by rule: events and clocks of GPUs vary by some percent */

/* By rule: 16 rows x 32 slots, two blocks ahead, four bytes a load, gate_up 32 x 16 (kernel_set.c).
 * More groups of fewer rows where a matrix is small for the device; fewer slots with more loads
 * each; more rows side by side; and four rows a load, whose work-items have a block each of 4096 or
 * of 2048 columns, or two of fewer groups. */
static const struct {
    struct token_shape row, gate;
} candidates[TOKEN_CANDIDATES] = {
    {{8, 32, 2, 4}, {32, 8, 2, 4}},     {{16, 16, 2, 4}, {32, 16, 1, 4}},
    {{16, 16, 4, 4}, {32, 8, 4, 4}},    {{32, 16, 2, 4}, {32, 4, 4, 4}},
    {{8, 16, 4, 4}, {32, 4, 2, 4}},     {{16, 32, 1, 4}, {32, 8, 1, 4}},
    {{16, 32, 1, 16}, {32, 16, 1, 16}}, {{16, 16, 1, 16}, {32, 8, 1, 16}},
    {{8, 16, 2, 16}, {32, 4, 2, 16}},
};

const char *token_kernel_name(enum token_kernel k)
{
    static const char *const names[] = {"matmul", "gate_up", "token_down", "token_output"};

    return names[k];
}

struct token_shape token_candidate(int i, enum token_kernel k)
{
    return k == TOKEN_GATE_UP ? candidates[i].gate : candidates[i].row;
}

bool token_shape_same(const struct token_shape *a, const struct token_shape *b)
{
    return a->rows == b->rows && a->slots == b->slots && a->ahead == b->ahead && a->load == b->load;
}

bool token_shapes_same(const struct token_shapes *a, const struct token_shapes *b)
{
    bool all = true;

    for (int k = 0; k < TOKEN_KERNELS; k++)
        all = all && token_shape_same(&a->of[k], &b->of[k]);
    return all;
}

void token_shapes_text(const struct token_shapes *s, char out[TOKEN_SHAPES_TEXT])
{
    size_t n = 0;

    out[0] = '\0';
    for (int k = 0; k < TOKEN_KERNELS && n < TOKEN_SHAPES_TEXT; k++)
        n += (size_t)snprintf(out + n, TOKEN_SHAPES_TEXT - n, "%s%dx%dx%dx%d", k ? " " : "",
                              s->of[k].rows, s->of[k].slots, s->of[k].ahead, s->of[k].load);
}

int token_fastest(const struct token_times *t, enum token_kernel k)
{
    int best = -1;
    double least = CLEARLY;

    for (int i = 0; i < TOKEN_CANDIDATES; i++)
        if (t->measured[i] && t->ratio[i][k] > 0 && t->ratio[i][k] < least) {
            least = t->ratio[i][k];
            best = i;
        }
    return best;
}

/* "8x32x2x4/32x8x2x4" */
static void candidate_text(int i, char *out, size_t size)
{
    struct token_shape r = token_candidate(i, TOKEN_MATMUL), g = token_candidate(i, TOKEN_GATE_UP);

    snprintf(out, size, "%dx%dx%dx%d/%dx%dx%dx%d", r.rows, r.slots, r.ahead, r.load, g.rows,
             g.slots, g.ahead, g.load);
}

/* "times q4_0 8x32x2x4/32x8x2x4 1.000 0.912 0.000 1.020", "right q4_0 16x32x2x4 ...". False:
 * neither. */
static bool read_line(const char *line, struct token_table *out)
{
    char type[32], which[TOKEN_SHAPES_TEXT], text[TOKEN_SHAPES_TEXT];
    double r[TOKEN_KERNELS];
    int rest = 0, t;
    bool right = strncmp(line, "right ", 6) == 0;

    if (right || strncmp(line, "wrong ", 6) == 0) {
        if (sscanf(line + 6, "%31s %n", type, &rest) != 1 || (t = dtype_from_word(type)) < 0)
            return false;
        out->of[t].verdict = right ? TOKEN_RIGHT : TOKEN_WRONG;
        snprintf(out->of[t].tested, sizeof out->of[t].tested, "%.63s", line + 6 + rest);
        return true;
    }
    if (sscanf(line, "times %31s %63s %lf %lf %lf %lf", type, which, &r[0], &r[1], &r[2], &r[3]) !=
            2 + TOKEN_KERNELS ||
        (t = dtype_from_word(type)) < 0)
        return false;
    for (int i = 0; i < TOKEN_CANDIDATES; i++) {
        candidate_text(i, text, sizeof text);
        if (strcmp(text, which) == 0) {
            out->of[t].measured[i] = true;
            memcpy(out->of[t].ratio[i], r, sizeof r);
            return true;
        }
    }
    return false;
}

/* The first line: format, key, and a sum of what is behind it. */
static bool head_right(const char *line, uint64_t key, const char *body)
{
    uint64_t of = 0, sum = 0;

    return sscanf(line, FORMAT " %" SCNx64 " %" SCNx64, &of, &sum) == 2 && of == key &&
           sum == hash_bytes(key, body, strlen(body));
}

bool token_table_read(const char *path, uint64_t key, struct token_table *out)
{
    char *text, *next = NULL, *line;
    size_t n;
    bool right;

    memset(out, 0, sizeof *out);
    if (cache_read(path, MOST, &text, &n, NULL) < 0 || !text)
        return false;
    next = strchr(text, '\n');
    right = next && head_right(text, key, next + 1);
    if (right) {
        next++;
        while (right && (line = strtok_r(NULL, "\n", &next)))
            right = read_line(line, out);
    }
    mem_free(text);
    if (!right)
        memset(out, 0, sizeof *out);
    return right;
}

static void write_type(struct strbuf *b, enum dtype t, const struct token_times *s)
{
    const char *word = dtype_info(t)->word;
    char text[TOKEN_SHAPES_TEXT];

    for (int i = 0; i < TOKEN_CANDIDATES; i++)
        if (s->measured[i]) {
            candidate_text(i, text, sizeof text);
            strbuf_printf(b, "times %s %s", word, text);
            for (int k = 0; k < TOKEN_KERNELS; k++)
                strbuf_printf(b, " %.6f", s->ratio[i][k]);
            strbuf_putc(b, '\n');
        }
    if (s->verdict != TOKEN_UNTESTED)
        strbuf_printf(b, "%s %s %s\n", s->verdict == TOKEN_RIGHT ? "right" : "wrong", word,
                      s->tested);
}

void token_table_write(const char *path, uint64_t key, const struct token_table *t)
{
    struct strbuf body = {0}, file = {0};

    for (int i = 0; i < DTYPE_COUNT; i++)
        write_type(&body, (enum dtype)i, &t->of[i]);
    strbuf_printf(&file, FORMAT " %016" PRIx64 " %016" PRIx64 "\n%s", key,
                  hash_bytes(key, strbuf_text(&body), body.len), strbuf_text(&body));
    if (!body.failed && !file.failed)
        cache_write(path, file.data, file.len, NULL);
    strbuf_release(&body);
    strbuf_release(&file);
}
