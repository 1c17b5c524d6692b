/* See ascii.h. */
#include "ui/ascii.h"

#include <stddef.h>

char ascii_of(uint32_t ch)
{
    static const struct {
        uint32_t ch;
        char as;
    } map[] = {
        {0x2500, '-'}, {0x2501, '='}, {0x2502, '|'}, {0x251c, '+'}, {0x2524, '+'},  {0x253c, '+'},
        {0x2578, '-'}, {0x00b7, '.'}, {0x25b8, '>'}, {0x25b9, '>'}, {0x2022, '*'},  {0x2026, '~'},
        {0x2193, 'v'}, {0x21b5, '$'}, {0x2423, '_'}, {0x00b5, 'u'}, {0x03bc, 'u'},  {0x00b1, '~'},
        {0x00d7, 'x'}, {0x00b0, 'o'}, {0x2013, '-'}, {0x2014, '-'}, {0x2018, '\''}, {0x2019, '\''},
        {0x201c, '"'}, {0x201d, '"'}, {0x00a0, ' '}, {0x258e, '|'}, {0x258c, '_'},  {0x2580, '"'},
        {0x2591, '.'}, {0x2592, ':'}, {0x2593, '%'}, {0x259a, '@'}, {0x2610, 'o'}, {0x2611, 'x'},
    };
    size_t i;
    int dots = 0;

    if (ch < 0x80)
        return (char)ch;
    for (i = 0; i < sizeof map / sizeof map[0]; i++)
        if (map[i].ch == ch)
            return map[i].as;
    if (ch > 0x2580 && ch <= 0x2588) /* filled from the bottom */
        return "_.-=+*##"[ch - 0x2581];
    /* filled from the left, full first */
    if (ch > 0x2588 && ch < 0x2590)
        return ch < 0x258c ? '#' : '|';
    if (ch >= 0x2800 && ch < 0x2900) {
        for (; ch & 0xff; ch = (ch & ~0xffu) | (ch & (ch - 1) & 0xff))
            dots++;
        return dots == 0 ? ' ' : dots < 3 ? '.' : dots < 6 ? ':' : '#';
    }
    return '?';
}

void ascii_canvas(struct canvas *c)
{
    size_t i, n = (size_t)c->w * (size_t)c->h;

    for (i = 0; i < n; i++) {
        struct cell *cell = &c->cells[i];

        if (cell->width == 0) /* right half of a wide one */
            cell->ch = ' ';
        else if (cell->ch & CELL_POOL)
            cell->ch = '?';
        else
            cell->ch = (unsigned char)ascii_of(cell->ch);
        cell->width = 1;
    }
}
