/* See layout.h. */
#include "ui/layout.h"

#include <string.h>

static int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

/* Shares what is left of height among those that grow, most[] at the most; returns the rows used then. */
static int rows_grow(const struct layout_request *r, const int *order, int n, const int *most, int *rows, int used, int height)
{
    int weight = 0, i;

    for (i = 0; i < n; i++)
        weight += rows[order[i]] ? r->panels[order[i]].grow : 0;
    while (used < height && weight > 0) {
        int left = height - used, gave = 0;

        for (i = 0; i < n; i++) {
            int p = order[i], more;

            if (!rows[p] || !r->panels[p].grow)
                continue;
            more = clamp((left * r->panels[p].grow + weight - 1) / weight, 0, most[i] > rows[p] ? most[i] - rows[p] : 0);
            more = clamp(more, 0, height - used);
            rows[p] += more;
            used += more;
            gave += more;
        }
        if (!gave)
            break;
    }
    return used;
}

static int rows_wanted(const struct layout_panel *p)
{
    return 1 + (p->want > p->min ? p->want : p->min);
}

/* Rows that the first n of them would like together. */
static int all_wanted(const struct layout_request *r, const int *order, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++)
        sum += rows_wanted(&r->panels[order[i]]);
    return sum;
}

/* Panels of one column share its rows: first who is shown at all (by priority), then what each wants, then what is left over. */
static void column_share(struct layout *out, const struct layout_request *r, struct rect area, const bool *member, bool tabs_allowed)
{
    int rows[LAYOUT_PANELS] = {0}, order[LAYOUT_PANELS], most[LAYOUT_PANELS] = {0}, n = 0, i, j, used = 0, all = 0, height = area.h, wanted = 0, y;

    for (i = 0; i < r->n_panels; i++) {
        if (!member[i])
            continue;
        for (j = n++; j > 0; j--) {
            int before = order[j - 1];

            if (before == r->focus || (i != r->focus && r->panels[before].priority <= r->panels[i].priority))
                break;
            order[j] = before;
        }
        order[j] = i;
        all += 1 + r->panels[i].min;
    }
    for (i = 0; i < n && all <= height; i++)                     /* one that will wait for its rows is named, too */
        if (r->panels[order[i]].priority >= LAYOUT_LUXURY && order[i] != r->focus && all_wanted(r, order, i) + 1 + r->panels[order[i]].min > height)
            all = height + 1;
    if (all > height && tabs_allowed && height > 1)
        out->tabs = (struct rect){area.x, area.y + --height, area.w, 1};
    for (i = 0; i < n; i++) {
        int need = 1 + r->panels[order[i]].min;

        /* The first one is shown as far as there is room, however little. */
        if (i == 0 && need > height)
            need = height;
        if (used + need > height || need < 1)
            continue;
        /* A luxury comes only where the others have all they want. */
        if (r->panels[order[i]].priority >= LAYOUT_LUXURY && order[i] != r->focus && wanted + need > height)
            continue;
        wanted += rows_wanted(&r->panels[order[i]]);
        rows[order[i]] = need;
        used += need;
    }
    for (i = 0; i < 2 * n; i++) {
        int p = order[i % n], limit = i < n ? height * LAYOUT_WHOLE / 100 : height, want = 1 + r->panels[p].want, more;

        if (!rows[p] || (i < n && !r->panels[p].whole))
            continue;
        more = clamp((want < limit ? want : limit) - rows[p], 0, height - used);
        rows[p] += more;
        used += more;
    }
    for (i = 0; i < n; i++)
        most[i] = r->panels[order[i]].most ? 1 + r->panels[order[i]].most : height;
    used = rows_grow(r, order, n, most, rows, used, height);
    for (i = 0; i < n; i++) {                                    /* who got between two steps gives back, and the others grow once more */
        const struct layout_panel *p = &r->panels[order[i]];

        if (p->step && rows[order[i]] > 1 + p->step && rows[order[i]] < most[i]) {
            used -= rows[order[i]] - 1 - p->step;
            rows[order[i]] = most[i] = 1 + p->step;
        }
    }
    rows_grow(r, order, n, most, rows, used, height);
    for (i = 0, y = area.y; i < r->n_panels; i++) {
        if (!member[i] || !rows[i])
            continue;
        out->panels[i] = (struct rect){area.x, y, area.w, rows[i]};
        y += rows[i];
    }
}

static void panels_place(struct layout *out, const struct layout_request *r, int body_y, int body_h, int *chat_w)
{
    bool first[LAYOUT_PANELS] = {false}, second[LAYOUT_PANELS] = {false};
    int i, n_first = 0, n_second = 0, width;

    for (i = 0; i < r->n_panels; i++) {
        if (!r->panels[i].open)
            continue;
        if (out->mode == LAYOUT_TWO && r->panels[i].column == 1) {
            second[i] = true;
            n_second++;
        } else {
            first[i] = true;
            n_first++;
        }
    }
    if (!n_first && !n_second)
        return;
    if (out->mode == LAYOUT_TWO && n_first && n_second) {
        int both = r->w * 40 / 100 - 2, a = clamp(both * 38 / 78, 10, 56), b = clamp(both - a, 10, 60);

        *chat_w = r->w - a - b - 2;
        out->rule[0] = (struct rect){*chat_w, body_y, 1, body_h};
        out->rule[1] = (struct rect){*chat_w + 1 + a, body_y, 1, body_h};
        column_share(out, r, (struct rect){*chat_w + 1, body_y, a, body_h}, first, false);
        column_share(out, r, (struct rect){*chat_w + 2 + a, body_y, b, body_h}, second, true);
        return;
    }
    for (i = 0; i < r->n_panels; i++)
        first[i] = first[i] || second[i];
    width = out->mode == LAYOUT_TABS ? r->w * 34 / 100 : clamp(r->w * 38 / 100, 20, 64);
    *chat_w = r->w - width - 1;
    out->rule[0] = (struct rect){*chat_w, body_y, 1, body_h};
    column_share(out, r, (struct rect){*chat_w + 1, body_y, width, body_h}, first, true);
}

enum layout_mode layout_mode(int w, int h)
{
    return w < 20 || h < 5 ? LAYOUT_TEXT : w < 60 ? LAYOUT_LINE : w < 100 ? LAYOUT_TABS : w >= 180 && h >= 45 ? LAYOUT_TWO : LAYOUT_COLUMN;
}

void layout_make(struct layout *out, const struct layout_request *r)
{
    int w = r->w < 1 ? 1 : r->w, h = r->h < 1 ? 1 : r->h, chat_w = w, body_y, input_rows, y;
    int alone = r->zoom >= 0 && r->zoom < r->n_panels ? r->zoom : -1;

    memset(out, 0, sizeof *out);
    out->mode = layout_mode(w, h);
    if (out->mode == LAYOUT_TEXT) {
        out->chat = (struct rect){0, 0, w, h - 1};
        out->input = (struct rect){0, h - 1, w, 1};              /* one row: what is typed, which Enter would send unseen */
        return;
    }
    out->title = (struct rect){0, 0, w, 1};
    body_y = h >= 10 && out->mode != LAYOUT_LINE ? 2 : 1;        /* a rule below the title where rows are plenty */
    input_rows = clamp(r->input_rows, 1, h >= 12 ? h / 3 : 1);

    if (out->mode == LAYOUT_LINE && alone < 0 && r->focus >= 0 && r->focus < r->n_panels)
        alone = r->focus;
    if (alone < 0 && out->mode != LAYOUT_LINE)
        panels_place(out, r, body_y, h - body_y, &chat_w);
    y = h - input_rows;
    out->input = (struct rect){0, y, chat_w, input_rows};
    if (y - body_y >= 4)
        out->input_rule = (struct rect){0, --y, chat_w, 1};
    out->chat = (struct rect){0, body_y, chat_w, y - body_y};
    if (alone >= 0) {
        out->panels[alone] = out->chat;
        out->chat.h = 0;
    }
}
