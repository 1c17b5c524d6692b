/* See export_onnx.h. */
#include "engine/convert/onnx/export_onnx.h"

#include "engine/adapter/merge.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/convert/companions.h"
#include "engine/convert/onnx/config.h"
#include "engine/convert/onnx/network.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct exporting {
    const struct onnx_request *r;
    const char *out;
    struct onnx_report *report;
    struct model *m;
    struct adapters *adapters;
    float strengths[LORA_ADAPTERS];
    struct onnx_graph *g;
    struct onnx_store *s;
    struct matrix tables[2];
    char folder[PATH_MAX]; /* temporary folder; empty: not created yet */
};

/* ---- the folder ---- */

/* Removes all files of a folder created by this process, and the folder. */
static void remove_folder(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    char path[PATH_MAX + 300];

    while (d && (entry = readdir(d)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            unlink(path);
        }
    if (d)
        closedir(d);
    rmdir(folder);
}

static bool is_empty(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    while (d && n < 3 && readdir(d))
        n++;
    if (d)
        closedir(d);
    return d && n < 3; /* . and .. */
}

/* Creates it beside `out`, whose name may end in slashes: "DIR/.NAME.PID.part". */
static int make_folder(struct exporting *x, const char *out, struct error *e)
{
    size_t n = strlen(out);
    const char *slash;
    struct stat st;

    while (n > 1 && out[n - 1] == '/')
        n--;
    if (!n || n >= PATH_MAX - 32)
        return error_set(e, ERR_USAGE, "'%.64s': no name of a folder", out);
    if (stat(out, &st) == 0 && (!S_ISDIR(st.st_mode) || !is_empty(out)))
        return error_set(e, ERR_USAGE, "%s: is there already; give another name", out);
    for (slash = out + n; slash > out && slash[-1] != '/';)
        slash--;
    snprintf(x->folder, sizeof x->folder, "%.*s.%.*s.%ld.part", (int)(slash - out), out,
             (int)(out + n - slash), slash, (long)getpid());
    if (mkdir(x->folder, 0777)) {
        int rc = error_set(e, ERR_IO, "%s: cannot be made: %s", out, strerror(errno));

        x->folder[0] = 0;
        return rc;
    }
    return 0;
}

static int path_of(const struct exporting *x, const char *name, char path[PATH_MAX],
                   struct error *e)
{
    return snprintf(path, PATH_MAX, "%s/%s", x->folder, name) < PATH_MAX
               ? 0
               : error_set(e, ERR_USAGE, "%.64s...: the name is too long", x->folder);
}

static int check_room(const struct exporting *x, uint64_t bytes, struct error *e)
{
    char there[24], needed[24];
    struct statvfs s;
    uint64_t room;

    if (statvfs(x->folder, &s))
        return 0;
    room = (uint64_t)s.f_bavail * s.f_frsize;
    if (room >= bytes)
        return 0;
    return error_set(e, ERR_IO, "%s: %s are free there, %s are to be written", x->out,
                     size_format(room, there, sizeof there),
                     size_format(bytes, needed, sizeof needed));
}

/* Syncs the files to disk before the rename. */
static int take_name(const struct exporting *x, const char *out, struct error *e)
{
    int fd = open(x->folder, O_RDONLY | O_DIRECTORY);

    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    return rename(x->folder, out)
               ? error_set(e, ERR_IO, "%s: cannot be made: %s", out, strerror(errno))
               : 0;
}

/* ---- contents ---- */

static int open_model(struct exporting *x, const char *in, struct error *e)
{
    int rc;

    if ((rc = model_describe(&x->m, in, NULL, e)) < 0)
        return rc;
    rc = network_possible(&x->m->hp, x->r->microsoft, e);
    model_free(x->m);
    x->m = NULL;
    if (rc < 0)
        return error_prefix(e, "%s", in);
    if ((rc = model_open_raw(&x->m, in, NULL, e)) < 0)
        return rc;
    if (!x->r->n_adapters)
        return 0;
    return merge_open(&x->adapters, x->strengths, x->m, x->r->adapters, x->r->n_adapters, in, e);
}

static int make_graph(struct exporting *x, struct error *e)
{
    if (!(x->g = onnx_graph_new()) ||
        !(x->s = onnx_store_new(x->g, x->m, x->r->type, x->strengths)))
        return error_set(e, ERR_MEMORY, "out of memory for the ONNX graph");
    return network_build(x->g, x->s, x->m, x->r->microsoft, x->tables, e);
}

/* Copies from the model's folder, or the folder of its file. */
static int copy_companions(struct exporting *x, struct error *e)
{
    char folder[PATH_MAX];

    file_folder(weight_file_path(x->m->file), folder, sizeof folder);
    return companions_copy(folder, x->folder, e);
}

static int write_configs(struct exporting *x, struct error *e)
{
    char path[PATH_MAX];
    int rc;

    if (weight_file_format(x->m->file) != WEIGHT_GGUF)
        rc = copy_companions(x, e);
    else if ((rc = path_of(x, "config.json", path, e)) == 0)
        rc = onnx_config_plain(x->m, path, e);
    x->report->genai = onnx_config_possible(&x->m->hp);
    if (rc || !x->report->genai || (rc = path_of(x, "genai_config.json", path, e)))
        return rc;
    return onnx_config_genai(x->m, path, e);
}

static int write_graph(struct exporting *x, const uint8_t *graph, size_t bytes, struct error *e)
{
    char path[PATH_MAX];
    int rc = path_of(x, "model.onnx", path, e);

    return rc ? rc : file_replace(path, graph, bytes, e);
}

static int write_all(struct exporting *x, struct error *e)
{
    struct onnx_written w;
    uint8_t *graph = NULL;
    size_t bytes = 0;
    int rc;

    if ((rc = onnx_store_place(x->s, x->folder, &w, e)) == 0 &&
        (rc = onnx_graph_write(x->g, x->m->name, &graph, &bytes, e)) == 0 &&
        (rc = check_room(x, w.own + w.copied + bytes, e)) == 0 &&
        (rc = onnx_store_write(x->s, x->folder, x->r->progress, x->r->progress_ctx, e)) == 0 &&
        (rc = write_graph(x, graph, bytes, e)) == 0)
        rc = write_configs(x, e);
    mem_free(graph);
    *x->report = (struct onnx_report){bytes, w.own, w.shared, w.tensors, x->report->genai};
    return rc;
}

int export_onnx(const char *in, const char *out, const struct onnx_request *r,
                struct onnx_report *report, struct error *e)
{
    struct exporting x = {.r = r, .out = out, .report = report};
    int rc;

    *report = (struct onnx_report){0};
    if ((rc = open_model(&x, in, e)) == 0 && (rc = make_folder(&x, out, e)) == 0) {
        if ((rc = make_graph(&x, e)) == 0 && (rc = write_all(&x, e)) == 0)
            rc = take_name(&x, out, e);
        if (rc)
            remove_folder(x.folder);
    }
    onnx_store_free(x.s);
    onnx_graph_free(x.g);
    model_free(x.m);
    adapters_close(x.adapters);
    return rc;
}
