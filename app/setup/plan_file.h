/* Placement plans as YAML files: configs/placements/, `--place FILE`, /place save. Any thread:
 * nothing is kept. A file is a list of rules for attention and experts, applied in order to a plan
 * that starts with everything on the CPU:
 *   attention: [{layers: last 50%, device: gpu}]
 *   experts: [{layers: 0-7, experts: "0,2-3", device: gpu}]
 *   head: gpu
 * Layers and experts: all, 5, 3-7, first 4, last 4, first 50%, last 25%, and lists of these with
 * commas. Devices: cpu, gpu (the one strategies use), or a name of --list-devices. `stream: yes` in
 * a rule of experts: their weights are copied to the device when a token chooses them, instead of
 * being kept there. `shape: 32x16` (layers x experts; optional) refuses the file for another model.
 */
#ifndef APP_SETUP_PLAN_FILE_H
#define APP_SETUP_PLAN_FILE_H

#include "engine/base/error.h"
#include "engine/placement/plan.h"
#include "engine/placement/planner.h"

#include <stdbool.h>

/* What a file is validated against. */
struct plan_shape {
    int n_layers, n_experts;
    /* the device "gpu" stands for; 0: there is none, and "gpu" is an error */
    int gpu;
    const char *const *devices; /* selectors by index, devices[0] "cpu" */
    int n_devices;
};

/* Errors: ERR_IO (cannot be read), ERR_USAGE with file:line:column. */
int plan_file_read(struct plan **out, const char *path, const struct plan_shape *shape,
                   struct error *e);
/* The same from memory; name stands for the file in errors. */
int plan_file_parse(struct plan **out, const char *text, size_t size, const char *name,
                    const struct plan_shape *shape, struct error *e);
/* The file's text, mem_* memory. ERR_MEMORY. */
int plan_file_text(const struct plan *p, const struct plan_shape *shape, char **text, size_t *n,
                   struct error *e);
/* Atomic (temporary file, rename). */
int plan_file_write(const struct plan *p, const char *path, const struct plan_shape *shape,
                    struct error *e);

/* True if `text` names a plan file rather than a strategy: it has a slash or ends in .yaml or .yml,
 * or it is not a strategy's name and there is such a file in the user's or the program's folder of
 * placements; *path gets it then. */
bool plan_file_find(const char *text, char *path, size_t size);

#endif
