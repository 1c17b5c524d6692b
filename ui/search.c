/* See search.h. Matches are counted again at each use: the text may have grown. */
#include "ui/search.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

size_t search_found(const struct ui_search *s, const char *text, size_t len, size_t at)
{
    size_t n = strlen(s->text);

    return n && at + n <= len && strncasecmp(text + at, s->text, n) == 0 ? n : 0;
}

/* Folded text cannot be shown. */
static bool is_open(const struct ui_model *m, const struct ui_block *b)
{
    return (b->kind != UI_THOUGHT && b->kind != UI_TOOL) || m->thoughts_open;
}

/* Match number `wanted` (all are counted); -1: the last one. */
static void locate(struct ui_model *m, int wanted)
{
    struct ui_search *s = &m->search;

    s->hits = 0;
    s->at = -1;
    for (size_t i = 0; i < m->n_blocks; i++) {
        const struct ui_block *b = &m->blocks[i];

        for (size_t at = 0; at < b->len && is_open(m, b); at++) {
            if (!search_found(s, b->text, b->len, at))
                continue;
            if (wanted < 0 || s->hits == wanted) {
                s->at = s->hits;
                s->block = i;
                s->offset = at;
            }
            s->hits++;
        }
    }
    m->dirty = true;
}

void search_begin(struct ui_model *m)
{
    m->search = (struct ui_search){.state = SEARCH_TYPING, .at = -1};
    m->dirty = true;
}

void search_end(struct ui_model *m)
{
    m->search.state = SEARCH_OFF;
    m->dirty = true;
}

void search_type(struct ui_model *m, const char *bytes, size_t n)
{
    size_t len = strlen(m->search.text);

    if (len + n < sizeof m->search.text) {
        memcpy(m->search.text + len, bytes, n);
        m->search.text[len + n] = 0;
    }
    locate(m, -1);
}

void search_shorten(struct ui_model *m)
{
    size_t len = strlen(m->search.text);

    while (len && (m->search.text[--len] & 0xc0) == 0x80)
        ;
    m->search.text[len] = 0;
    locate(m, -1);
}

void search_step(struct ui_model *m, int step)
{
    int before = m->search.at;

    locate(m, -1);
    if (m->search.hits > 0)
        locate(m, before < 0 ? -1 : (before + step + m->search.hits) % m->search.hits);
}
