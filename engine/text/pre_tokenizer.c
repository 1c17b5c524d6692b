/* Splits text with PCRE2. Every step splits each piece from the previous step separately, as in the
 * reference library; empty matches split too. PCRE2 interprets here: its JIT has a stack of fixed
 * size that a long word overflows. Cost of a search: PCRE2's match limit counts from each start, so
 * a search of n starts may take n times the limit. Hence a small limit and few starts at a time; if
 * that is not enough, start by start with an increasing limit, charged to a budget proportional to
 * the whole text. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pre_tokenizer.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/text/pre_tokenizers.h"

#include <pcre2.h>
#include <string.h>

#define STEPS_MAX 16          /* in a file's sequence; models have up to 7 */
#define PATTERN_MAX 16384     /* bytes */
#define CHEAP 1000            /* steps per start, free of charge */
#define STARTS 4096           /* least starts between two polls of stop */
#define BUDGET_BASE 2000000   /* budget of a short text */
#define BUDGET_A_BYTE 512     /* additional budget per byte */
#define HEAP_KIB (64u * 1024) /* memory of one search */

struct stage {
    pcre2_code *code;
    char *pattern; /* mem_*, for errors */
    enum split_behavior behavior;
    bool invert;
};

struct pre_tokenizer {
    struct stage stages[STEPS_MAX];
    int n;
};

static void *take(PCRE2_SIZE size, void *unused)
{
    return mem_alloc(size, 1);
}

static void give(void *p, void *unused)
{
    mem_free(p);
}

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the pre-tokenizer");
}

/* Tokenizer files use Oniguruma's dialect. Rejects what PCRE2 would silently read differently: set
 * operations inside brackets and \h for hexadecimal digits. And \W inside brackets, which
 * spell_words cannot express. */
static bool means_something_else(const char *p, size_t n)
{
    bool inside = false;

    for (size_t i = 0; i < n; i++) {
        char next = i + 1 < n ? p[i + 1] : 0;

        if (p[i] == '\\') {
            if (next == 'h' || next == 'H' || (inside && next == 'W'))
                return true;
            i++;
        } else if (!inside) {
            inside = p[i] == '[';
            if (inside && next == '^')
                i++;
            if (inside && i + 1 < n && p[i + 1] == ']')
                i++;
        } else if (p[i] == ']') {
            inside = false;
        } else if ((p[i] == '[' && next != ':') || (p[i] == '&' && next == '&')) {
            return true;
        } else if (p[i] == '[') {
            const char *end = memchr(p + i, ']', n - i);

            i = end ? (size_t)(end - p) : n;
        }
    }
    return false;
}

/* Oniguruma's \w includes marks and circled letters, and only digits of the numbers; in Latin-1 all
 * of them, except within brackets. */
#define WORD_CLASS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORDS WORD_CLASS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* Replacement of an escape; NULL: itself. */
static const char *word_escape(char c, bool inside)
{
    switch (c) {
    case 'w': return inside ? WORD_CLASS : "[" WORDS "]";
    case 'W': return "[^" WORDS "]";
    case 'b': return "(?:(?<=[" WORDS "])(?![" WORDS "])|(?<![" WORDS "])(?=[" WORDS "]))";
    case 'B': return "(?:(?<=[" WORDS "])(?=[" WORDS "])|(?<![" WORDS "])(?![" WORDS "]))";
    default: return NULL;
    }
}

/* Number of bytes at p[0 .. n) to copy together: an escape, the start of a class with a bracket as
 * its first member, a POSIX class in one. */
static size_t together(const char *p, size_t n, bool inside)
{
    const char *end;
    size_t at = 1;

    if (*p == '\\')
        return n > 1 ? 2 : 1;
    if (*p != '[')
        return 1;
    if (inside) {
        end = memmem(p, n, ":]", 2);
        return end ? (size_t)(end - p) + 2 : n;
    }
    at += at < n && p[at] == '^';
    return at + (at < n && p[at] == ']');
}

/* Writes the expression with those escapes expanded; of nested brackets means_something_else
 * accepts only POSIX classes. */
static void spell_words(struct strbuf *out, const char *p, size_t n)
{
    bool inside = false;

    for (size_t i = 0, size; i < n; i += size) {
        const char *spelled = p[i] == '\\' && i + 1 < n && (!inside || p[i + 1] == 'w')
                                  ? word_escape(p[i + 1], inside)
                                  : NULL;

        size = together(p + i, n - i, inside);
        strbuf_put(out, spelled ? spelled : p + i, spelled ? strlen(spelled) : size);
        inside = p[i] == '[' || (inside && p[i] != ']');
    }
}

static int compile(struct stage *st, const struct split *s, struct error *e)
{
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *c = general ? pcre2_compile_context_create(general) : NULL;
    uint32_t options = s->literal ? PCRE2_UTF | PCRE2_LITERAL | PCRE2_USE_OFFSET_LIMIT
                                  : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                        PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
    struct strbuf spelled = {0};
    bool failed;
    char why[160] = "";
    PCRE2_SIZE at;
    int number = 0, status = 0;

    if (s->literal)
        strbuf_put(&spelled, s->pattern, s->len);
    else
        spell_words(&spelled, s->pattern, s->len);
    if (c && !spelled.failed) {
        pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        st->code = pcre2_compile((PCRE2_SPTR)spelled.data, spelled.len, options, &number, &at, c);
    }
    failed = spelled.failed;
    strbuf_release(&spelled);
    if (!c || failed || (!st->code && number == PCRE2_ERROR_HEAP_FAILED))
        status = no_memory(e);
    else if (!st->code) {
        pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
        status = error_set(e, ERR_MODEL,
                           "the pre-tokenizer's pattern '%.*s%s' cannot be used: %s at byte %zu",
                           (int)(s->len < 80 ? s->len : 80), s->pattern, s->len < 80 ? "" : "…",
                           why, (size_t)at);
    }
    pcre2_compile_context_free(c);
    pcre2_general_context_free(general);
    return status;
}

int pre_tokenizer_add(struct pre_tokenizer **p, const struct split *s, struct error *e)
{
    struct stage *st;
    int status;

    if (!*p && !(*p = mem_alloc(1, sizeof **p)))
        return no_memory(e);
    if ((*p)->n == STEPS_MAX)
        return error_set(e, ERR_MODEL, "the pre-tokenizer has more than %d steps", STEPS_MAX);
    if (s->len == 0 || s->len > PATTERN_MAX)
        return error_set(e, ERR_MODEL, "a pre-tokenizer's pattern has %zu bytes; 1 to %d are read",
                         s->len, PATTERN_MAX);
    if (!s->literal && means_something_else(s->pattern, s->len))
        return error_set(
            e, ERR_MODEL,
            "the pre-tokenizer's pattern '%.*s' uses set operations, \\h or [\\W], which are "
            "not supported",
            (int)(s->len < 80 ? s->len : 80), s->pattern);
    st = &(*p)->stages[(*p)->n];
    *st = (struct stage){.behavior = s->behavior, .invert = s->invert};
    if ((status = compile(st, s, e)) < 0)
        return status;
    (*p)->n++;
    st->pattern = mem_string_n(s->pattern, s->len);
    return st->pattern ? 0 : no_memory(e);
}

/* names: words separated by a blank. */
static bool is_among(const char *names, const char *name, size_t len)
{
    for (const char *at = names; *at;) {
        size_t n = strcspn(at, " ");

        if (n == len && memcmp(at, name, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

int pre_tokenizer_add_named(struct pre_tokenizer **p, const char *name, size_t len, unsigned *flags,
                            struct error *e)
{
    for (size_t i = 0; i < sizeof pre_rows / sizeof *pre_rows; i++) {
        if (!is_among(pre_rows[i].names, name, len))
            continue;
        *flags = pre_rows[i].flags;
        for (int k = 0; k < PATTERNS_MAX && pre_rows[i].patterns[k]; k++) {
            struct split s = {.pattern = pre_rows[i].patterns[k],
                              .len = strlen(pre_rows[i].patterns[k])};
            int status = pre_tokenizer_add(p, &s, e);

            if (status < 0)
                return status;
        }
        return 0;
    }
    return 1;
}

static bool cuts_as(const struct pre_tokenizer *p, const struct row *row)
{
    int k = 0;

    for (; k < PATTERNS_MAX && row->patterns[k]; k++)
        if (k == p->n || p->stages[k].behavior != SPLIT_ISOLATED || p->stages[k].invert ||
            strcmp(p->stages[k].pattern, row->patterns[k]) != 0)
            return false;
    return k == p->n;
}

const char *pre_tokenizer_name(const struct pre_tokenizer *p, unsigned flags, size_t *len)
{
    for (size_t i = 0; p && i < sizeof pre_rows / sizeof *pre_rows; i++)
        if ((pre_rows[i].flags & ~(unsigned)PRE_BOS) == flags && cuts_as(p, &pre_rows[i])) {
            *len = strcspn(pre_rows[i].names, " ");
            return pre_rows[i].names;
        }
    return NULL;
}

bool pre_tokenizer_may_be_empty(const struct pre_tokenizer *p)
{
    uint32_t least;

    for (int i = 0; i < p->n; i++)
        if (pcre2_pattern_info(p->stages[i].code, PCRE2_INFO_MINLENGTH, &least) < 0 || least == 0)
            return true;
    return false;
}

void pre_tokenizer_free(struct pre_tokenizer *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++) {
        pcre2_code_free(p->stages[i].code);
        mem_free(p->stages[i].pattern);
    }
    mem_free(p);
}

/* ---- splitting ---- */

int splitter_begin(struct splitter *s, size_t len)
{
    pcre2_general_context *general = pcre2_general_context_create(take, give, NULL);

    s->budget = BUDGET_BASE + (uint64_t)len * BUDGET_A_BYTE;
    s->match = general ? pcre2_match_data_create(1, general) : NULL;
    s->limits = general ? pcre2_match_context_create(general) : NULL;
    pcre2_general_context_free(general);
    if (!s->match || !s->limits)
        return no_memory(s->e);
    pcre2_set_heap_limit(s->limits, HEAP_KIB);
    return 0;
}

void splitter_end(struct splitter *s)
{
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->limits);
    s->match = s->limits = NULL;
}

static size_t next_character(const char *text, size_t len, size_t at)
{
    at++;
    while (at < len && ((unsigned char)text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* A piece of text being searched. */
struct search {
    const struct stage *stage;
    const char *text;
    size_t len;
};

/* PCRE2's result with this limit: starts from at to last. */
static int ask(struct splitter *s, const struct search *q, size_t at, size_t last, uint32_t limit)
{
    pcre2_set_match_limit(s->limits, limit);
    pcre2_set_offset_limit(s->limits, last);
    return pcre2_match(q->stage->code, (PCRE2_SPTR)q->text, q->len, at,
                       PCRE2_NO_UTF_CHECK | (last == at ? PCRE2_ANCHORED : 0), s->match, s->limits);
}

static int too_long(struct splitter *s, const struct search *q)
{
    return error_set(s->e, ERR_INPUT,
                     "the pre-tokenizer's pattern '%.80s' takes too many steps on this text",
                     q->stage->pattern);
}

/* One start, at any cost within the budget. */
static int ask_patiently(struct splitter *s, const struct search *q, size_t at)
{
    uint32_t limit = CHEAP;
    int rc;

    while ((rc = ask(s, q, at, at, limit)) == PCRE2_ERROR_MATCHLIMIT && s->budget > 0) {
        limit = limit > UINT32_MAX / 8 ? UINT32_MAX : limit * 8;
        limit = s->budget < limit ? (uint32_t)s->budget : limit;
        s->budget -= limit;
    }
    return rc;
}

/* First match at or after at. 1: found; 0: none. */
static int find(struct splitter *s, const struct search *q, size_t at, size_t *start, size_t *stop)
{
    size_t starts = q->len / 64 > STARTS ? q->len / 64 : STARTS, last;
    bool patient = false;
    int rc = PCRE2_ERROR_NOMATCH, status;

    while (rc == PCRE2_ERROR_NOMATCH && at < q->len) {
        last = q->len - at > starts ? at + starts : q->len;
        rc = patient ? ask_patiently(s, q, at) : ask(s, q, at, last, CHEAP);
        if (rc == PCRE2_ERROR_MATCHLIMIT && !patient) {
            patient = true;
            rc = PCRE2_ERROR_NOMATCH;
            continue;
        }
        if ((status = s->step(s->ctx)) < 0)
            return status;
        if (rc == PCRE2_ERROR_NOMATCH)
            at = next_character(q->text, q->len, patient ? at : last);
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return no_memory(s->e);
    if (rc < 0)
        return too_long(s, q);
    *start = pcre2_get_ovector_pointer(s->match)[0];
    *stop = pcre2_get_ovector_pointer(s->match)[1];
    return *start >= at && *stop >= *start && *stop <= q->len ? 1 : too_long(s, q);
}

/* A piece being joined before it is passed to the next step. */
struct run {
    size_t from, to;
    bool open, match;
};

static bool joins(enum split_behavior b, bool before, bool now)
{
    switch (b) {
    case SPLIT_CONTIGUOUS: return before == now;
    case SPLIT_MERGED_WITH_PREVIOUS: return now && !before;
    case SPLIT_MERGED_WITH_NEXT: return before && !now;
    default: return false;
    }
}

static int cut_stage(struct splitter *s, int stage, const char *text, size_t len);

static int hand_on(struct splitter *s, int stage, const char *text, const struct run *r)
{
    if (!r->open || r->from == r->to ||
        (r->match && s->pre->stages[stage].behavior == SPLIT_REMOVED))
        return 0;
    s->matched = r->match;
    return cut_stage(s, stage + 1, text + r->from, r->to - r->from);
}

static int part(struct splitter *s, int stage, const char *text, struct run *r, struct run next)
{
    int status;

    next.match ^= s->pre->stages[stage].invert;
    if (r->open && joins(s->pre->stages[stage].behavior, r->match, next.match)) {
        r->to = next.to;
        r->match = next.match;
        return 0;
    }
    status = hand_on(s, stage, text, r);
    *r = next;
    return status;
}

static int cut_stage(struct splitter *s, int stage, const char *text, size_t len)
{
    struct search q = {NULL, text, len};
    struct run r = {0};
    size_t at = 0, done = 0, start = 0, stop = 0;
    bool any = false;
    int status = 0;

    if (stage == s->pre->n)
        return s->piece(s->ctx, text, len);
    q.stage = &s->pre->stages[stage];
    while (at < len && (status = find(s, &q, at, &start, &stop)) > 0) {
        status = 0;
        /* no empty match directly after a match */
        if (start == stop && any && start == done) {
            at = next_character(text, len, start);
            continue;
        }
        if (start > done)
            status = part(s, stage, text, &r, (struct run){done, start, true, false});
        if (status == 0)
            status = part(s, stage, text, &r, (struct run){start, stop, true, true});
        if (status < 0)
            return status;
        at = done = stop;
        any = true;
    }
    if (status == 0 && done < len)
        status = part(s, stage, text, &r, (struct run){done, len, true, false});
    return status < 0 ? status : hand_on(s, stage, text, &r);
}

int splitter_run(struct splitter *s, const char *text, size_t len)
{
    size_t size;
    int status = 0;

    for (size_t i = 0, j; i < len && status == 0; i = j) {
        uint32_t cp;
        bool valid = true, first;

        utf8_decode_strict(text + i, len - i, &cp, &first);
        for (j = i; j < len; j += size) {
            size = utf8_decode_strict(text + j, len - j, &cp, &valid);
            if (valid != first)
                break;
        }
        s->matched = false;
        status = first ? cut_stage(s, 0, text + i, j - i) : s->piece(s->ctx, text + i, j - i);
    }
    return status;
}
