/* SVG plots of measurements: bars with their spread for series, a heat map for the use of experts.
 * Pure: values in, text out. Main thread. */
#ifndef APP_COMMON_SVG_PLOT_H
#define APP_COMMON_SVG_PLOT_H

#include "engine/base/error.h"
#include "engine/base/series.h"

#include <stddef.h>
#include <stdint.h>

struct plot_bar {
    const char *label, *note; /* note: after the value, or NULL */
    /* median is the bar, min and max the line, mean ± sd the box */
    struct series_figures figures;
    double limit; /* a mark (the roofline); 0: none */
};

struct plot_point {
    double x, y;
};

/* mem_* strings, the caller's; NULL: no memory. */
char *plot_bars(const char *title, const char *unit, const struct plot_bar *bars, size_t n);
/* Rows x columns (layers x experts), coloured by value / the largest; shape[i] 1 draws a dot (on a
 * device). shape may be NULL. */
char *plot_map(const char *title, const double *values, const uint8_t *shape, int rows,
               int columns);
/* A curve through points in rising x, the best one marked. */
char *plot_curve(const char *title, const char *x_unit, const char *y_unit,
                 const struct plot_point *points, size_t n);
/* Several drawings below each other in one file. ERR_MEMORY: one of them is NULL, too; ERR_IO. */
int plot_write(const char *path, char *const *drawings, size_t n, struct error *e);

#endif
