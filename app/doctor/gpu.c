/* The doctor's checks of GPUs: what the kernel shows, who may open it, which OpenCL drivers are
 * installed, and what came of trying them. */
#include "app/doctor/internal.h"

#include "engine/base/size.h"

#include <dirent.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NODES_FIRST 128 /* /dev/dri/renderD128 */
#define NODES_END 192
#define DRIVERS_MOST 16

/* Whose GPU it is, by the PCI vendor, the Debian package of its driver, and what the libraries of
 * drivers for it are called. */
static const struct vendor {
    int64_t id;
    const char *name, *package, *libraries[4];
} known_vendors[] = {
    {0x8086, "Intel", "intel-opencl-icd", {"igdrcl", "MesaOpenCL", "RusticlOpenCL"}},
    {0x1002, "AMD", "mesa-opencl-icd", {"amdocl", "MesaOpenCL", "RusticlOpenCL"}},
    {0x10de, "NVIDIA", "nvidia-opencl-icd", {"nvidia-opencl", "MesaOpenCL", "RusticlOpenCL"}},
};

struct drivers {
    int n;
    char library[DRIVERS_MOST][200]; /* as the .icd files name them */
};

static bool exists(const struct doctor *d, const char *path, struct stat *st)
{
    char full[2 * PATH_MAX];

    snprintf(full, sizeof full, "%s%s", d->place.root, path);
    return stat(full, st) == 0;
}

static bool may_use(const struct doctor *d, const char *path)
{
    char full[2 * PATH_MAX];

    snprintf(full, sizeof full, "%s%s", d->place.root, path);
    return d->place.may_use(full);
}

/* ---- the kernel's ---- */

static const struct vendor *vendor_of(const struct doctor *d, int node)
{
    char path[80], text[DOCTOR_TEXT];
    long id;

    snprintf(path, sizeof path, "/sys/class/drm/renderD%d/device/vendor", node);
    if (doctor_text(d, path, text) != DOCTOR_READ)
        return NULL;
    id = strtol(text, NULL, 16);
    for (size_t i = 0; i < sizeof known_vendors / sizeof *known_vendors; i++)
        if (known_vendors[i].id == id)
            return &known_vendors[i];
    return NULL;
}

static void closed_node(struct doctor *d, const char *path, const struct stat *st, const char *who)
{
    const struct group *group = getgrgid(st->st_gid);
    char command[120];
    struct doctor_finding *f = doctor_find(d, DOCTOR_WARN, "GPU", "%s%sthis user may not open %s",
                                           who, who[0] ? ": " : "", path);

    /* a file of root's own group is opened by udev's rules, not by membership */
    if (!group || st->st_gid == 0 || !(st->st_mode & S_IRGRP)) {
        doctor_remedy(f, "sudo usermod -aG render,video $USER",
                      "sudo usermod -aG render,video $USER, then log in again; in a container pass "
                      "--device %s",
                      path);
        return;
    }
    snprintf(command, sizeof command, "sudo usermod -aG %.60s $USER", group->gr_name);
    doctor_remedy(f, command, "%s, then log in again", command);
}

static void check_node(struct doctor *d, int node)
{
    const struct vendor *v = vendor_of(d, node);
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/dev/dri/renderD%d", node);
    if (!exists(d, path, &st))
        return;
    if (!may_use(d, path))
        closed_node(d, path, &st, v ? v->name : "");
    else
        doctor_find(d, DOCTOR_OK, "GPU", "%s can be opened%s%s%s", path, v ? " (" : "",
                    v ? v->name : "", v ? ")" : "");
}

void doctor_check_gpus(struct doctor *d)
{
    struct doctor_finding *f;
    struct stat st;

    for (int i = NODES_FIRST; i < NODES_END; i++)
        check_node(d, i);
    if (exists(d, "/dev/kfd", &st) && !may_use(d, "/dev/kfd"))
        closed_node(d, "/dev/kfd", &st, "AMD");
    if (exists(d, "/proc/driver/nvidia/version", &st) && !exists(d, "/dev/nvidiactl", &st)) {
        f = doctor_find(d, DOCTOR_WARN, "GPU",
                        "NVIDIA's kernel driver is loaded, /dev/nvidiactl is "
                        "missing");
        doctor_remedy(f, "sudo nvidia-modprobe -u -c 0",
                      "sudo nvidia-modprobe -u -c 0; in a "
                      "container: --gpus all");
    }
}

/* ---- drivers ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void read_driver(struct doctor *d, struct drivers *list, const char *path, const char *name)
{
    char text[DOCTOR_TEXT];
    struct doctor_finding *f;
    enum doctor_read got = doctor_text(d, path, text);

    text[strcspn(text, "\r\n")] = 0;
    if (text[0]) {
        snprintf(list->library[list->n++], sizeof list->library[0], "%.190s", text);
        return;
    }
    f = doctor_find(d, DOCTOR_WARN, "OpenCL", "%s %s", name,
                    got == DOCTOR_FORBIDDEN ? "cannot be read by this user" : "names no library");
    doctor_remedy(f, "", "install its driver again, or remove %s", path);
}

static void read_drivers(struct doctor *d, struct drivers *list)
{
    const char *folder = d->place.vendors && d->place.vendors[0] ? d->place.vendors
                                                                 : "/etc/OpenCL/vendors";
    char full[2 * PATH_MAX], path[PATH_MAX], names[DRIVERS_MOST][256];
    struct dirent *entry;
    int n = 0;
    DIR *dir;

    list->n = 0;
    snprintf(full, sizeof full, "%s%s", d->place.root, folder);
    if (!(dir = opendir(full)))
        return;
    while ((entry = readdir(dir)) && n < DRIVERS_MOST) {
        size_t len = strlen(entry->d_name);

        if (len > 4 && strcmp(entry->d_name + len - 4, ".icd") == 0)
            snprintf(names[n++], sizeof names[0], "%s", entry->d_name);
    }
    closedir(dir);
    qsort(names, (size_t)n, sizeof names[0], by_name);
    for (int i = 0; i < n; i++)
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) < (int)sizeof path)
            read_driver(d, list, path, names[i]);
}

static bool has_driver(const struct drivers *list, const struct vendor *v)
{
    for (int i = 0; i < list->n; i++)
        for (int k = 0; k < 4 && v->libraries[k]; k++)
            if (strstr(list->library[i], v->libraries[k]))
                return true;
    return false;
}

static void missing_driver(struct doctor *d, const struct vendor *v)
{
    struct doctor_finding *f =
        doctor_find(d, DOCTOR_WARN, "OpenCL",
                    "the %s GPU has no OpenCL driver (no .icd file names one)", v->name);
    char command[120];

    snprintf(command, sizeof command, "sudo apt install %s", v->package);
    doctor_remedy(f, command, "%s", command);
}

/* Drivers for the GPUs that the kernel shows. Returns how many are missing. */
static int check_vendors(struct doctor *d, const struct drivers *list)
{
    const struct vendor *seen[sizeof known_vendors / sizeof *known_vendors] = {0};
    struct stat st;
    int missing = 0;

    for (int i = NODES_FIRST; i < NODES_END; i++) {
        const struct vendor *v;
        char path[64];

        snprintf(path, sizeof path, "/dev/dri/renderD%d", i);
        if (exists(d, path, &st) && (v = vendor_of(d, i)))
            seen[v - known_vendors] = v;
    }
    if (exists(d, "/proc/driver/nvidia/version", &st))
        seen[2] = &known_vendors[2];
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        if (seen[i] && !has_driver(list, seen[i])) {
            missing_driver(d, seen[i]);
            missing++;
        }
    return missing;
}

void doctor_check_drivers(struct doctor *d)
{
    struct drivers list;
    struct doctor_finding *f;
    char text[300] = "";
    size_t at = 0;
    int missing;

    read_drivers(d, &list);
    missing = check_vendors(d, &list);
    for (int i = 0; i < list.n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.60s", i ? ", " : "",
                               list.library[i]);
    if (list.n) {
        doctor_find(d, DOCTOR_OK, "OpenCL", "installed: %s", text);
    } else if (!missing) {
        f = doctor_find(d, DOCTOR_NOTE, "OpenCL", "no driver is installed: the CPU computes alone");
        doctor_remedy(f, "",
                      "if there is a GPU: intel-opencl-icd, mesa-opencl-icd or "
                      "nvidia-opencl-icd");
    }
    /* what probing says where there is no device repeats what stands above */
    if (d->measures.drivers[0] && list.n) {
        bool left_out = strstr(d->measures.drivers, "left out") != NULL;

        f = doctor_find(d, left_out ? DOCTOR_WARN : DOCTOR_NOTE, "OpenCL", "%s",
                        d->measures.drivers);
        if (left_out)
            doctor_remedy(f, "moetop --list-devices",
                          "update that driver, then moetop "
                          "--list-devices tries it again");
    }
}

/* ---- devices ---- */

static void check_device(struct doctor *d, const struct doctor_device *device)
{
    const struct device_info *info = &device->info;
    char memory[24], rate[24], text[64] = "";
    struct doctor_finding *f;

    if (info->why_not[0] || device->failed[0]) {
        f = doctor_find(d, DOCTOR_WARN, info->selector, "%.80s (%.60s) cannot be used: %.140s",
                        info->name, info->driver,
                        info->why_not[0] ? info->why_not : device->failed);
        doctor_remedy(f, "", "update its driver");
        return;
    }
    if (info->is_cpu_type) {
        doctor_find(d, DOCTOR_OK, info->selector, "%.80s is the CPU: used only when named",
                    info->name);
        return;
    }
    if (strncmp(device->selftest, "wrong", 5) == 0) {
        f = doctor_find(d, DOCTOR_WARN, info->selector, "%.80s (%.60s) computes wrongly: %.140s",
                        info->name, info->driver, device->selftest);
        doctor_remedy(f, "", "update its driver; until then the CPU does that work");
        return;
    }
    if (device->read_rate > 0)
        snprintf(text, sizeof text, ", reads weights at %s", doctor_rate(device->read_rate, rate));
    doctor_find(d, DOCTOR_OK, info->selector, "%.80s (%.60s), %s%s%s%.60s", info->name,
                info->driver, size_format(info->memory, memory, sizeof memory), text,
                device->selftest[0] ? ", " : "", device->selftest);
}

void doctor_check_devices(struct doctor *d)
{
    for (int i = 0; i < d->measures.n_devices && i < DEVICE_MAX; i++)
        check_device(d, &d->measures.devices[i]);
}
