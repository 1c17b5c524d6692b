/* See token_ink.h. The levels are few and far apart, to be distinguishable at a glance, and without
 * colours they are attributes; the background is a step of the theme's second ramp, the text black
 * or white, whichever is readable. */
#include "ui/token_ink.h"

#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *word, *levels[TOKEN_INK_LEVELS];
} modes[INK_MODES] = {
    [INK_OFF] = {"off", {0}},
    [INK_PROBABILITY] = {"probability", {NULL, "< 90 %", "< 50 %", "< 20 %", "< 5 %"}},
    [INK_SURPRISE] = {"surprise", {NULL, "2nd choice", "3rd, 4th", "to 10th", "beyond"}},
    [INK_TIME] = {"time", {NULL, "1.2 x median", "1.5 x", "2 x", "3 x"}},
    [INK_EXPERT] = {"expert", {NULL, NULL, "among the chosen", NULL, "chosen first"}},
    [INK_ATTENTION] = {"attention", {NULL, "even", "2 x", "4 x", "8 x"}},
};

const char *token_ink_word(enum token_ink ink)
{
    return modes[ink].word;
}

const char *token_ink_level_word(enum token_ink ink, int level)
{
    return modes[ink].levels[level];
}

const struct ui_token *token_ink_token(const struct ui_model *m, uint64_t serial)
{
    return serial && serial <= m->n_tokens && serial + UI_TOKENS > m->n_tokens
               ? &m->tokens[(serial - 1) % UI_TOKENS]
               : NULL;
}

uint64_t token_ink_at(const struct ui_model *m, const struct ui_block *b, size_t offset,
                      size_t *end)
{
    uint64_t low = b->first_token, high, first;

    *end = b->len;
    if (!b->first_token || b->first_token > m->n_tokens || b != m->blocks + m->inked_block)
        return 0;
    if (low + UI_TOKENS <= m->n_tokens)
        low = m->n_tokens - UI_TOKENS + 1;
    first = low;
    for (high = m->n_tokens + 1; low + 1 < high;) { /* the last one that starts there or before */
        uint64_t middle = low + (high - low) / 2;

        if (token_ink_token(m, middle)->at <= offset)
            low = middle;
        else
            high = middle;
    }
    if (low < m->n_tokens)
        *end = token_ink_token(m, low + 1)->at;
    if (token_ink_token(m, low)->at <= offset)
        return low;
    *end = token_ink_token(m, first)->at;
    return 0;
}

static int by_limits(double v, const double limits[4])
{
    int level = 0;

    for (int i = 0; i < 4; i++)
        if (v >= limits[i])
            level = i + 1;
    return level;
}

/* How many tokens the model ranked higher; if it is not listed: the length of the list. */
static int rank_of(const struct ui_token *k)
{
    int i = 0;

    while (i < k->likely.n && k->likely.ids[i] != k->id)
        i++;
    return i;
}

/* 0: not among its experts, 1: the first one, 2: another. */
static int chose(const struct ui_model *m, const struct ui_token *k, uint64_t serial)
{
    const uint16_t *row = m->token_experts + (serial - 1) % UI_TOKENS * (uint64_t)m->token_width +
                          (uint64_t)(m->cursor_layer * m->live.n_experts_used);

    if (!k->has_experts || !m->token_experts || m->cursor_layer >= m->live.n_layers)
        return 0;
    for (int i = 0; i < m->live.n_experts_used; i++)
        if (row[i] == m->cursor_expert)
            return i ? 2 : 1;
    return 0;
}

/* The newest answer is the one that was asked about. */
static bool attends(const struct ui_model *m)
{
    return m->attended.times && m->inked_block < m->n_blocks &&
           m->blocks[m->inked_block].first_token == m->attended.first;
}

void token_ink_attended(struct ui_model *m, const char *name, const float *times, size_t n)
{
    mem_free(m->attended.times);
    memset(&m->attended, 0, sizeof m->attended);
    if (m->inked_block >= m->n_blocks || !n || !(m->attended.times = mem_alloc(n, sizeof *times)))
        return;
    memcpy(m->attended.times, times, n * sizeof *times);
    m->attended.n = n;
    m->attended.first = m->blocks[m->inked_block].first_token;
    snprintf(m->attended.name, sizeof m->attended.name, "%s", name);
    m->ink = INK_ATTENTION;
    m->dirty = true;
}

enum token_ink token_ink_next(const struct ui_model *m)
{
    enum token_ink next = (m->ink + 1) % INK_MODES;

    return next == INK_ATTENTION && !attends(m) ? INK_OFF : next;
}

static double times_even(const struct ui_model *m, uint64_t serial)
{
    uint64_t at = serial - m->attended.first;

    return attends(m) && serial >= m->attended.first && at < m->attended.n
               ? (double)m->attended.times[at]
               : 0;
}

static int level_of(const struct ui_model *m, const struct ui_token *k, uint64_t serial)
{
    static const double missing[] = {0.1, 0.5, 0.8, 0.95}, ranks[] = {1, 2, 4, 10},
                        times[] = {1.2, 1.5, 2, 3}, looks[] = {1, 2, 4, 8};
    int which;

    switch (m->ink) {
    case INK_PROBABILITY: return by_limits(1 - (double)k->probability, missing);
    case INK_SURPRISE: return k->likely.n ? by_limits(rank_of(k), ranks) : 0;
    case INK_TIME:
        return m->shown.p50_ms > 0 ? by_limits(k->us * 1e-3 / m->shown.p50_ms, times) : 0;
    case INK_EXPERT: which = chose(m, k, serial); return which == 1 ? 4 : which ? 2 : 0;
    case INK_ATTENTION: return by_limits(times_even(m, serial), looks);
    default: return 0;
    }
}

struct style token_ink_level_style(const struct theme *t, struct style s, int level)
{
    static const uint16_t plain[TOKEN_INK_LEVELS] = {0, STYLE_UNDERLINE, STYLE_BOLD,
                                                     STYLE_BOLD | STYLE_UNDERLINE, STYLE_REVERSE};

    if (!level)
        return s;
    if (t->depth == THEME_MONO)
        s.attrs |= plain[level];
    else
        s = theme_on(theme_ramp(t, 1)[2 * level]);
    return s;
}

struct style token_ink_style(const struct ui_model *m, struct style s, uint64_t serial)
{
    const struct ui_token *k = token_ink_token(m, serial);

    if (!k)
        return s;
    s = token_ink_level_style(&m->theme, s, level_of(m, k, serial));
    if (m->expert_marked && chose(m, k, serial))
        s.attrs |= STYLE_UNDERLINE | STYLE_BOLD;
    if (m->marked == serial)
        s.attrs ^= STYLE_REVERSE;
    return s;
}

bool token_ink_shown(const struct ui_model *m, const struct ui_block *b)
{
    return m->ink != INK_OFF && (m->ink != INK_ATTENTION || attends(m)) && b->first_token &&
           b->first_token <= m->n_tokens && b == m->blocks + m->inked_block;
}
