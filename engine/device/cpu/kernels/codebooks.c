/* See codebooks.h. */
#include "engine/device/cpu/kernels/codebooks.h"
#include "engine/file/grids.h"

struct codebooks codebooks;

static uint8_t byte_at(const uint32_t *points, int i)
{
    return (uint8_t)(points[i / 4] >> 8 * (i % 4));
}

/* n points of eight values, 8, 25 or 43. */
static void fill_codes(const uint32_t *points, int n, uint8_t *out)
{
    for (int p = 0; p < n; p++)
        for (int i = 0; i < 8; i++)
            out[i / 4 * n + p] |= (uint8_t)(byte_at(points, 8 * p + i) / 17 << 2 * (i % 4));
}

void codebooks_fill(void)
{
    struct codebooks b = {0};

    fill_codes(grid_iq2_xxs, 256, b.iq2_xxs[0]);
    fill_codes(grid_iq2_xs, 512, b.iq2_xs[0]);
    fill_codes(grid_iq2_s, 1024, b.iq2_s[0]);
    for (int i = 0; i < 4 * 256; i++)
        b.iq3_xxs[i % 4][i / 4] = byte_at(grid_iq3_xxs, i);
    for (int i = 0; i < 4 * 512; i++)
        b.iq3_s[i % 4 / 2][i / 4] |= (uint8_t)(byte_at(grid_iq3_s, i) << 4 * (i % 2));
    for (int i = 0; i < 128; i++)
        b.signs[i] = (uint8_t)(i | (__builtin_popcount((unsigned)i) & 1) << 7);
    codebooks = b;
}
