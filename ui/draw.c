/* See draw.h. */
#include "ui/draw.h"
#include "ui/model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void draw_bar(struct canvas *c, int x, int y, int width, double share, struct style s,
              struct style back)
{
    int eighths, i;

    assert(x >= 0 && y >= 0);
    if (width <= 0)
        return;
    share = isnan(share) || share < 0 ? 0 : share > 1 ? 1 : share;
    eighths = (int)(share * width * 8 + 0.5);
    if (share > 0 && eighths == 0)
        eighths = 1;
    for (i = 0; i < width; i++) {
        int part = eighths - i * 8;

        if (part >= 8)
            canvas_put(c, x + i, y, s, 0x2588);
        else if (part > 0)
            canvas_put(c, x + i, y, s, 0x2590u - (uint32_t)part);
        else
            canvas_put(c, x + i, y, back, 0x00b7);
    }
}

void draw_line(struct canvas *c, int x, int y, int width, double share, struct style s,
               struct style back)
{
    int halves, i;

    share = isnan(share) || share < 0 ? 0 : share > 1 ? 1 : share;
    halves = (int)(share * width * 2 + 0.5);
    for (i = 0; i < width; i++)
        canvas_put(c, x + i, y, halves > i * 2 ? s : back,
                   halves >= i * 2 + 2   ? 0x2501
                   : halves == i * 2 + 1 ? 0x2578
                                         : 0x2500);
}

double draw_history_max(const struct ui_history *h, int newest)
{
    double max = 0;
    int i;

    assert(newest >= 0);
    for (i = 0; i < newest && (uint64_t)i < h->count && i < UI_HISTORY; i++) {
        double v = h->values[(h->count - 1 - (uint64_t)i) % UI_HISTORY];

        max = v > max ? v : max;
    }
    return max;
}

void draw_graph(struct canvas *c, struct rect r, const struct ui_history *h, double top,
                struct style s)
{
    assert(r.w >= 0 && r.h >= 0);
    /* Braille dots by column (left, right) and row from the bottom. */
    static const uint8_t dots[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}};
    int x, y, half, level, rows = r.h * 4;

    for (x = 0; x < r.w; x++) {
        int heights[2] = {0, 0};

        for (half = 0; half < 2; half++) {
            int back = (r.w - 1 - x) * 2 + (1 - half);

            if ((uint64_t)back >= h->count || back >= UI_HISTORY || top <= 0)
                continue;
            heights[half] =
                (int)(h->values[(h->count - 1 - (uint64_t)back) % UI_HISTORY] / top * rows + 0.5);
            if (heights[half] < 1)
                heights[half] = 1;
        }
        for (y = 0; y < r.h; y++) {
            uint32_t bits = 0;

            for (half = 0; half < 2; half++)
                for (level = 0; level < 4; level++)
                    if (heights[half] > (r.h - 1 - y) * 4 + level)
                        bits |= dots[half][level];
            if (bits)
                canvas_put(c, r.x + x, r.y + y, s, 0x2800 + bits);
        }
    }
}

uint32_t draw_level(double share)
{
    int eighths = isnan(share) ? 0 : (int)(share * 8 + 0.5);

    return eighths <= 0 ? ' ' : eighths >= 8 ? 0x2588 : 0x2580u + (uint32_t)eighths;
}

uint32_t draw_spinner(unsigned step, bool ascii)
{
    static const uint8_t dots[] = {0x0b, 0x19, 0x39, 0x38, 0x3c, 0x34, 0x26, 0x27, 0x07, 0x0f};

    return ascii ? (uint32_t) "|/-\\"[step % 4] : 0x2800u + dots[step % sizeof dots];
}

const char *draw_size(char out[16], double bytes, bool brief)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const letters[] = {"B", "K", "M", "G", "T"};
    int u = 0;

    while (bytes >= 1000 && u < 4) {
        bytes /= 1024;
        u++;
    }
    snprintf(out, 16, "%.*f%s%s",
             u == 0 || bytes >= 99.95 ? 0
             : bytes >= 9.995         ? 1
                                      : 2,
             bytes, brief ? "" : " ", brief ? letters[u] : units[u]);
    return out;
}

const char *draw_rate(char out[16], double per_second)
{
    if (!(per_second > 0))
        snprintf(out, 16, "–");
    else
        snprintf(out, 16, "%.*f",
                 per_second >= 999.95  ? 0
                 : per_second >= 9.995 ? 1
                                       : 2,
                 per_second);
    return out;
}

const char *draw_time(char out[24], double seconds)
{
    long s = (long)(seconds + 0.5);

    if (!(seconds >= 0) || seconds > 1e9)
        snprintf(out, 24, "–");
    else if (s < 3600)
        snprintf(out, 24, "%ld:%02ld", s / 60, s % 60);
    else
        snprintf(out, 24, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return out;
}

const char *draw_seconds(char out[16], double seconds)
{
    if (seconds < 0.9995)
        snprintf(out, 16, "%.0f ms", seconds * 1e3);
    else
        snprintf(out, 16, "%.2f s", seconds);
    return out;
}

const char *draw_count(char out[24], uint64_t n)
{
    if (n < 10000)
        snprintf(out, 24, "%d", (int)n);
    else if (n < 10000000)
        snprintf(out, 24, "%d %03d", (int)(n / 1000), (int)(n % 1000));
    else
        snprintf(out, 24, "%.1f M", (double)n * 1e-6);
    return out;
}

const char *draw_stop_word(enum stop_reason r)
{
    switch (r) {
    case STOP_LENGTH: return "length limit";
    case STOP_CANCELLED: return "stopped";
    case STOP_CONTEXT: return "context full";
    case STOP_ERROR: return "failed";
    case STOP_STRING: return "stop string";
    default: return "";
    }
}
