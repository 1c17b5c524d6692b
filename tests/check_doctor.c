/* app/doctor: what it says of machines made of files and figures, and that no content of /proc,
 * /sys or the firmware's table can harm it. */
#include "app/doctor/doctor.h"
#include "app/doctor/internal.h"
#include "engine/base/file.h"
#include "engine/base/utf8.h"
#include "tests/support.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[256];
static struct error e;
static struct doctor d;
static const char *closed; /* the end of the path that this user may not open; NULL: none */

static bool may_use(const char *path)
{
    size_t n = strlen(path), m = closed ? strlen(closed) : 0;

    return !closed || n < m || strcmp(path + n - m, closed) != 0;
}

static void put_bytes(const char *path, const void *bytes, size_t n)
{
    char full[512], *slash;

    snprintf(full, sizeof full, "%s%s", root, path);
    slash = strrchr(full, '/');
    *slash = 0;
    ck_assert_int_eq(file_make_folders(full, &e), 0);
    *slash = '/';
    ck_assert_msg(file_replace(full, bytes, n, &e) == 0, "%s", e.text);
}

static void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

/* A workstation on which there is nothing to mend. */
static void machine(const char *name)
{
    static const char policy[] = "/sys/devices/system/cpu/cpu%d/cpufreq/%s";
    char path[100];

    snprintf(root, sizeof root, "%s/%s", support_tmpdir(), name);
    closed = NULL;
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU 9000\nflags\t: avx2 fma\n");
    put("/proc/stat", "cpu  1 0 1 8 0 0 0 0\ncpu0 1 0 1 8 0 0 0 0\ncpu1 1 0 1 8 0 0 0 0\nintr 1\n");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 8388608 kB\nMemAvailable: 12582912 kB\n"
                         "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB\n");
    put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\nVmRSS:\t200 kB\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
                                "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
                                "31 22 0:30 / /home rw,nosuid - ext4 /dev/sda2 rw\n"
                                "32 22 0:31 / /tmp rw,nosuid,noexec shared:1 - tmpfs tmpfs rw\n");
    put("/sys/class/powercap/intel-rapl:0/name", "package-0\n");
    put("/sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n");
    put("/proc/loadavg", "0.10 0.20 0.30 1/100 1234\n");
    put("/sys/devices/system/cpu/online", "0-1\n");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("/etc/OpenCL/vendors/intel.icd", "/usr/lib/x86_64-linux-gnu/intel-opencl/libigdrcl.so\n");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, policy, i, "scaling_governor");
        put(path, "performance\n");
        snprintf(path, sizeof path, policy, i, "scaling_driver");
        put(path, "acpi-cpufreq\n");
    }
    memset(&d, 0, sizeof d);
    d.place = (struct doctor_place){.root = root,
                                    .cache = "/home/me/.cache/moetop",
                                    .term = "xterm-256color",
                                    .codeset = "UTF-8",
                                    .colours = 256,
                                    .may_use = may_use};
    d.measures = (struct doctor_measures){.threads = 2, .memory_rate = 60e9, .disk_rate = 3e9};
    strcpy(d.measures.kernels, "avx2");
    strcpy(d.measures.disk_of, "/m/a.gguf");
    d.measures.n_models = d.measures.all_models = 1;
    d.measures.models[0] = (struct doctor_model){.path = "/m/it's a.gguf",
                                                 .name = "m/it's a.gguf",
                                                 .chosen = true,
                                                 .fits = true,
                                                 .bytes = 1 << 30,
                                                 .needed = 1 << 30,
                                                 .context = 4096,
                                                 .rate = 30};
}

/* The nth finding on a subject. */
static const struct doctor_finding *nth(const char *subject, int n)
{
    for (int i = 0; i < d.n; i++)
        if (strcmp(d.findings[i].subject, subject) == 0 && n-- == 0)
            return &d.findings[i];
    return NULL;
}

static void expect_nth(const char *subject, int n, enum doctor_level level, const char *found,
                       const char *remedy)
{
    const struct doctor_finding *f = nth(subject, n);

    ck_assert_msg(f != NULL, "nothing is found on %s", subject);
    ck_assert_msg(f->level == level && strstr(f->found, found), "%s: %s %s, not %s %s", subject,
                  doctor_level_word(f->level), f->found, doctor_level_word(level), found);
    ck_assert_msg(remedy ? strstr(f->remedy, remedy) != NULL : !f->remedy[0], "%s: remedy '%s'",
                  subject, f->remedy);
}

static void expect(const char *subject, enum doctor_level level, const char *found,
                   const char *remedy)
{
    doctor_examine(&d);
    expect_nth(subject, 0, level, found, remedy);
}

/* A structure of type 17 with two strings. Returns its length. */
static size_t put_module(uint8_t *at, int megabytes, int speed, const char *locator)
{
    int n = 0x28;

    memset(at, 0, 0x28);
    at[0] = 17;
    at[1] = 0x28;
    at[0x0a] = 64; /* data bits */
    at[0x0c] = (uint8_t)megabytes;
    at[0x0d] = (uint8_t)(megabytes >> 8);
    at[0x10] = 1;
    at[0x11] = 2;
    at[0x12] = 0x22;
    at[0x20] = (uint8_t)speed;
    at[0x21] = (uint8_t)(speed >> 8);
    n += sprintf((char *)at + n, "DIMM 0") + 1;
    n += sprintf((char *)at + n, "%s", locator) + 1;
    at[n++] = 0;
    return (size_t)n;
}

static size_t put_modules(uint8_t table[1024])
{
    static const uint8_t first[] = {0, 6, 0, 0, 1, 0, 'B', 'I', 'O', 'S', 0, 0};
    size_t n = sizeof first;

    memcpy(table, first, n);
    n += put_module(table + n, 16384, 5600, "P0 CHANNEL A");
    n += put_module(table + n, 0, 0, "P0 CHANNEL A");
    n += put_module(table + n, 16384, 5600, "P0 CHANNEL B");
    memcpy(table + n, (uint8_t[]){127, 4, 0, 0, 0, 0}, 6);
    return n + 6;
}

START_TEST(a_good_machine_has_nothing_to_mend)
{
    uint8_t table[1024];
    size_t n = put_modules(table);

    machine("good");
    put_bytes("/sys/firmware/dmi/tables/DMI", table, n);
    doctor_examine(&d);
    for (int i = 0; i < d.n; i++)
        ck_assert_msg(d.findings[i].level == DOCTOR_OK, "%s: %s", d.findings[i].subject,
                      d.findings[i].found);
    ck_assert_int_ge(d.n, 12);
    ck_assert_str_eq(d.machine, "Test CPU 9000, 2 CPUs, memory: 16 GiB");
    ck_assert_int_eq(d.n_commands, DOCTOR_COMMANDS);
    ck_assert_str_eq(d.commands[0].line, "moetop -m '/m/it'\\''s a.gguf'");
    /* 2 channels of 64 bits at 5600 MT/s */
    expect("memory speed", DOCTOR_OK, "60.0 GB/s of 89.6 GB/s (2 modules of DDR5", NULL);
    d.measures.memory_rate = 30e9;
    expect("memory speed", DOCTOR_WARN, "30.0 GB/s of 89.6 GB/s", "one module in each channel");
}
END_TEST

START_TEST(energy_that_cannot_be_read_has_a_remedy)
{
    char path[600];

    machine("energy");
    expect("energy", DOCTOR_OK, "the processor's counters are readable", NULL);
    snprintf(path, sizeof path, "%s/sys/class/powercap/intel-rapl:0/energy_uj", root);
    if (geteuid() != 0) { /* root reads them all */
        ck_assert_int_eq(chmod(path, 0), 0);
        expect("energy", DOCTOR_NOTE, "N/A: only root may read", "let everybody read them");
        ck_assert_str_eq(nth("energy", 0)->command,
                         "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj");
    }
    ck_assert_int_eq(unlink(path), 0);
    expect("energy", DOCTOR_NOTE, "sudo modprobe intel_rapl_msr", NULL);
    put("/sys/class/drm/card1/device/hwmon/hwmon4/energy1_input", "2000000\n");
    expect("energy", DOCTOR_NOTE, "a GPU's are readable", NULL);
}
END_TEST

START_TEST(modules_that_are_not_listed_are_not_guessed)
{
    uint8_t table[1024];
    size_t n = put_module(table, 8192, 3200, "BANK 0");

    machine("modules");
    expect("memory speed", DOCTOR_NOTE, "lists no modules", NULL);
    put_bytes("/sys/firmware/dmi/tables/DMI", table, n);
    expect("memory speed", DOCTOR_OK,
           "at most 25.6 GB/s (1 module of DDR5 at 3200 MT/s, 1 channel "
           "if each has its own",
           "a second module");
    n = put_module(table, 8192, 0, "BANK 0");
    put_bytes("/sys/firmware/dmi/tables/DMI", table, n);
    expect("memory speed", DOCTOR_NOTE, "whose speed is not stated", NULL);
    d.measures.memory_rate = 0;
    expect("memory speed", DOCTOR_NOTE, "not measured", "end other programs");
}
END_TEST

/* Cut off anywhere, and with any one byte changed: each in a block of its own size, so that a
 * sanitizer sees a read behind it. */
START_TEST(no_table_of_the_firmware_is_trusted)
{
    static const uint8_t values[] = {0, 1, 4, 5, 17, 127, 255};
    struct dmi_memory m;
    uint8_t table[1024];
    size_t n = put_modules(table);

    for (size_t k = 0; k <= n; k++) {
        uint8_t *copy = malloc(k ? k : 1);

        memcpy(copy, table, k);
        dmi_memory_read(copy, k, &m);
        ck_assert(m.modules >= 0 && m.modules <= 2 && m.channels <= 2);
        free(copy);
    }
    for (size_t k = 0; k < n; k++)
        for (size_t v = 0; v < sizeof values; v++) {
            uint8_t *copy = malloc(n);

            memcpy(copy, table, n);
            copy[k] = values[v];
            dmi_memory_read(copy, n, &m);
            ck_assert(m.modules >= 0 && m.modules <= 4 && m.channels <= 4);
            free(copy);
        }
}
END_TEST

START_TEST(a_laptop_saves_power)
{
    machine("laptop");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    expect("governor", DOCTOR_WARN, "powersave saves power on 1 of 2 CPUs", "cpupower");
    ck_assert_str_eq(d.commands[0].line, "sudo cpupower frequency-set -g performance");
    /* there the processor chooses the clock by the preference */
    for (int i = 0; i < 2; i++) {
        char path[100];

        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_driver", i);
        put(path, "intel_pstate\n");
    }
    expect("governor", DOCTOR_OK, "powersave", NULL);
    put("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "power\n");
    expect("governor", DOCTOR_WARN, "powersave, power saves power", "cpupower");
    put("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "4000000\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "2000000\n");
    put("/sys/devices/system/cpu/intel_pstate/no_turbo", "1\n");
    expect("clock", DOCTOR_WARN, "limited to 2000 of 4000 MHz", "cpupower frequency-set -u");
    expect_nth("clock", 1, DOCTOR_NOTE, "turbo is switched off", "no_turbo");
    put("/sys/class/power_supply/AC/online", "0\n");
    expect("power", DOCTOR_NOTE, "battery", "plug it in");
    put("/sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
    put("/sys/class/thermal/thermal_zone0/temp", "99000\n");
    expect("temperature", DOCTOR_WARN, "99", "fans");
}
END_TEST

START_TEST(a_container_has_limits)
{
    machine("container");
    put("/proc/self/cgroup", "0::/inner\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/inner/cpu.max", "50000 100000\n");
    put("/sys/fs/cgroup/inner/memory.max", "536870912\n");
    put("/sys/fs/cgroup/inner/memory.current", "104857600\n");
    expect("processor limit", DOCTOR_WARN, "0.5 of 2 CPUs", "--cpus");
    expect("memory", DOCTOR_OK, "412 MiB can be had, the control group's limit is 512 MiB", NULL);
    put("/sys/fs/cgroup/inner/memory.current", "530000000\n");
    expect("memory", DOCTOR_BAD, "limit is 512 MiB", "--memory");
    ck_assert_int_eq(doctor_count(&d, DOCTOR_BAD), 1);
    put("/sys/fs/cgroup/inner/cpu.max", "150000 100000\n");
    expect("processor limit", DOCTOR_NOTE, "1.5 of 2 CPUs", "--cpus");
    put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t1\n");
    doctor_examine(&d);
    expect_nth("processor limit", 1, DOCTOR_NOTE, "may use 1 of 2 CPUs", "taskset");
    /* version 1 of control groups */
    put("/proc/self/cgroup", "4:cpu,cpuacct:/x\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "25000\n");
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    expect("processor limit", DOCTOR_WARN, "0.25 of 2 CPUs", "--cpus");
}
END_TEST

START_TEST(a_busy_machine_is_told)
{
    machine("busy");
    put("/proc/loadavg", "1.50 0.20 0.30 1/100 1234\n");
    expect("other load", DOCTOR_NOTE, "1.5 programs want 2 CPUs", "stop");
    put("/proc/loadavg", "7.00 0.20 0.30 1/100 1234\n");
    expect("other load", DOCTOR_WARN, "7.0 programs want 2 CPUs", "stop");
    put("/proc/loadavg", "nan\n");
    doctor_examine(&d);
    ck_assert(nth("other load", 0) == NULL);
}
END_TEST

START_TEST(gpus_and_their_drivers)
{
    machine("gpu");
    put("/dev/dri/renderD128", "");
    put("/sys/class/drm/renderD128/device/vendor", "0x8086\n");
    expect("GPU", DOCTOR_OK, "/dev/dri/renderD128 can be opened (Intel)", NULL);
    closed = "/dev/dri/renderD128";
    expect("GPU", DOCTOR_WARN, "Intel: this user may not open /dev/dri/renderD128",
           "sudo usermod -aG ");
    closed = NULL;
    /* no driver for an AMD GPU */
    put("/sys/class/drm/renderD128/device/vendor", "0x1002\n");
    expect("OpenCL", DOCTOR_WARN, "the AMD GPU has no OpenCL driver",
           "sudo apt install mesa-opencl-icd");
    expect_nth("OpenCL", 1, DOCTOR_OK, "libigdrcl.so", NULL);
    put("/etc/OpenCL/vendors/mesa.icd", "libMesaOpenCL.so.1\n");
    expect("OpenCL", DOCTOR_OK, "libMesaOpenCL.so.1", NULL);
    put("/etc/OpenCL/vendors/broken.icd", "\n");
    expect("OpenCL", DOCTOR_WARN, "broken.icd names no library", "install its driver again");
    snprintf(d.measures.drivers, sizeof d.measures.drivers,
             "the OpenCL driver x.so (x.icd) crashed when it was tried and is left out");
    doctor_examine(&d);
    expect_nth("OpenCL", 2, DOCTOR_WARN, "crashed when it was tried", "--list-devices");
}
END_TEST

START_TEST(no_driver_at_all)
{
    char command[400];

    machine("bare");
    snprintf(command, sizeof command, "rm -r %s/etc", root);
    ck_assert_int_eq(system(command), 0);
    snprintf(d.measures.drivers, sizeof d.measures.drivers, "no OpenCL platform");
    expect("OpenCL", DOCTOR_NOTE, "no driver is installed", "intel-opencl-icd");
    ck_assert(nth("OpenCL", 1) == NULL);
    put("/proc/driver/nvidia/version", "NVRM version: 550\n");
    expect("GPU", DOCTOR_WARN, "/dev/nvidiactl is missing", "nvidia-modprobe");
    expect_nth("OpenCL", 0, DOCTOR_WARN, "the NVIDIA GPU has no OpenCL driver",
               "nvidia-opencl-icd");
}
END_TEST

START_TEST(devices_are_judged_by_their_tests)
{
    struct doctor_device *x;

    machine("devices");
    d.measures.n_devices = 3;
    x = d.measures.devices;
    for (int i = 0; i < 3; i++) {
        snprintf(x[i].info.selector, sizeof x[i].info.selector, "opencl:%d", i);
        snprintf(x[i].info.name, sizeof x[i].info.name, "GPU %d", i);
        snprintf(x[i].info.driver, sizeof x[i].info.driver, "Driver 24.1");
    }
    x[0].read_rate = 200e9;
    strcpy(x[0].selftest, "every kernel right");
    strcpy(x[1].selftest, "wrong: attention");
    strcpy(x[2].info.why_not, "OpenCL 1.1: 1.2 or newer is needed");
    expect("opencl:0", DOCTOR_OK, "reads weights at 200.0 GB/s, every kernel right", NULL);
    expect("opencl:1", DOCTOR_WARN, "Driver 24.1) computes wrongly: wrong: attention", "update");
    expect("opencl:2", DOCTOR_WARN, "cannot be used: OpenCL 1.1", "update");
    ck_assert_msg(strstr(d.commands[1].line, "--compare cpu,gpu"), "%s", d.commands[1].line);
    x[0].info.is_cpu_type = true;
    expect("opencl:0", DOCTOR_OK, "is the CPU", NULL);
}
END_TEST

START_TEST(nodes_of_memory)
{
    machine("numa");
    put("/sys/devices/system/node/online", "0-1\n");
    expect("NUMA", DOCTOR_NOTE, "2 nodes; their memory cannot be read", NULL);
    put("/sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal:  8388608 kB\nNode 0 MemFree:  4194304 kB\n");
    put("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:  4194304 kB\n");
    expect("NUMA", DOCTOR_OK, "2 nodes, 4.0 GiB to 4.0 GiB free each", NULL);
    put("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:  8388608 kB\nNode 1 MemFree:  1024 kB\n");
    put("/proc/sys/kernel/numa_balancing", "1\n");
    expect("NUMA", DOCTOR_NOTE, "1.0 MiB to 4.0 GiB", "drop_caches");
    expect_nth("NUMA", 1, DOCTOR_NOTE, "moves pages", "numa_balancing=0");
    put("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:  0 kB\nNode 1 MemFree:  0 kB\n");
    expect("NUMA", DOCTOR_WARN, "1 of 2 nodes have no memory", "modules");
}
END_TEST

START_TEST(memory_pages_swap_and_cache)
{
    machine("memory");
    put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    expect("huge pages", DOCTOR_WARN, "switched off", "echo madvise");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\nSwapTotal: 1000000 "
                         "kB\nSwapFree: 50000 kB\n");
    expect("swap", DOCTOR_WARN, "used", "swapoff");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1000000 kB\nSwapTotal: 1000000 "
                         "kB\nSwapFree: 50000 kB\n");
    expect("swap", DOCTOR_BAD, "used", "nearly full");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1000000 kB\nSwapTotal: 0 "
                         "kB\nSwapFree: 0 kB\n");
    expect("swap", DOCTOR_OK, "none", NULL);
    d.place.cache = "/tmp/cache";
    expect("cache", DOCTOR_WARN, "lies in /tmp, mounted noexec", "--cache-dir");
    d.place.cache = "/tmpx/cache"; /* not below /tmp */
    expect("cache", DOCTOR_OK, "/tmpx/cache", NULL);
    d.place.cache = NULL;
    strcpy(d.place.cache_why, "it belongs to another user");
    expect("cache", DOCTOR_WARN, "another user", "--cache-dir");
    ck_assert_ptr_null(nth("kernel choices", 0)); /* nothing was measured yet */
    d.measures.tuned = (struct tune_count){.choices = 40};
    expect("kernel choices", DOCTOR_OK, "40, measured on a quiet machine", NULL);
    d.measures.tuned = (struct tune_count){.choices = 40, .busy = 17, .most = 62};
    expect("kernel choices", DOCTOR_WARN,
           "17 of 40 were measured while other programs took up to 62 %",
           "quieter at a later start");
    d.measures.tuned = (struct tune_count){.choices = 40, .busy = 17, .floats = 3, .most = 62};
    expect("kernel choices", DOCTOR_WARN, "17 of 40", "3 of them are of float weights");
    d.measures.disk_rate = 0.1e9;
    expect("disk", DOCTOR_NOTE, "0.10 GB/s", "NVMe");
    d.measures.disk_rate = 0;
    expect("disk", DOCTOR_NOTE, "not measured", NULL);
}
END_TEST

START_TEST(measured_choices_under_a_limit)
{
    machine("choices");
    d.measures.tuned = (struct tune_count){.choices = 40, .busy = 17, .most = 62};
    expect("kernel choices", DOCTOR_WARN, "17 of 40", "quieter at a later start");
    ck_assert_str_eq(d.commands[0].line, "moetop --bench --tune again");
    /* another measurement would be no better */
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    expect("kernel choices", DOCTOR_NOTE, "17 of 40 were measured under the processor limit",
           "raise the limit first");
    for (int i = 0; i < d.n_commands; i++)
        ck_assert_msg(!strstr(d.commands[i].line, "--tune"), "%s", d.commands[i].line);
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n"); /* both threads whole */
    expect("kernel choices", DOCTOR_WARN, "17 of 40", "quieter at a later start");
}
END_TEST

START_TEST(terminals)
{
    machine("terminal");
    d.place.colours = 8;
    d.place.term = "xterm";
    expect("colours", DOCTOR_NOTE, "8 of 256 (TERM=xterm)", "xterm-256color");
    d.place.colours = -1;
    expect("colours", DOCTOR_WARN, "\"xterm\" is not known", "ncurses-term");
    d.place.no_color = true;
    expect("colours", DOCTOR_NOTE, "NO_COLOR", "unset");
    d.place.codeset = "ANSI_X3.4-1968";
    expect("characters", DOCTOR_WARN, "ANSI_X3.4-1968", "LC_ALL=C.UTF-8");
    d.place.codeset = "UTF-8";
    d.place.term = "linux";
    expect("font", DOCTOR_NOTE, "512", "window");
    d.place.terminal = true;
    d.place.columns = 40;
    d.place.rows = 10;
    expect("size", DOCTOR_NOTE, "40 × 10", "larger");
    d.place.term = NULL;
    expect("terminal", DOCTOR_NOTE, "not set", "TERM");
}
END_TEST

START_TEST(models_that_fit_and_do_not)
{
    struct doctor_model *m;

    machine("models");
    m = d.measures.models;
    expect("model", DOCTOR_OK, "fits with 4096 tokens of context, about 30 tokens/s", NULL);
    m[1] = m[0];
    m[1].chosen = false;
    strcpy(m[1].path, "/m/large.gguf");
    strcpy(m[1].name, "m/large.gguf");
    m[1].fits = false;
    m[1].bytes = (uint64_t)30 << 30;
    m[1].needed = (uint64_t)32 << 30;
    m[1].rate = 9;
    d.measures.n_models = 2;
    d.measures.all_models = 5;
    doctor_examine(&d);
    expect_nth("model", 1, DOCTOR_NOTE, "needs 32 GiB", "moetop --fit /m/large.gguf");
    expect_nth("model", 2, DOCTOR_NOTE, "3 more", NULL);
    strcpy(m[1].fits_with, "--expert-cache 6G");
    doctor_examine(&d);
    expect_nth("model", 1, DOCTOR_NOTE, "needs 32 GiB", "--expert-cache 6G, about 9.0 tokens/s");
    /* the largest that is fast enough to read along */
    ck_assert_str_eq(d.commands[0].line, "moetop -m /m/large.gguf --expert-cache 6G");
    m[0].fits = false;
    expect("model", DOCTOR_BAD, "more than is free", "smaller model");
    strcpy(m[0].why_not, "it is no GGUF file");
    expect("model", DOCTOR_BAD, "cannot be opened: it is no GGUF file", "-m FILE");
}
END_TEST

static void check_width(const struct strbuf *page, size_t most)
{
    for (const char *p = page->data; *p; p += *p == '\n') {
        size_t n = strcspn(p, "\n");

        ck_assert_msg(utf8_width(p, n) <= most, "%.*s", (int)n, p);
        p += n;
    }
}

/* 80 columns, but for words that are longer; fewer in a chat; colours only where they are asked
 * for. */
START_TEST(the_page_is_narrow)
{
    struct strbuf plain = {0}, coloured = {0}, narrow = {0};

    machine("page");
    put("/proc/loadavg", "7.00 0.20 0.30 1/100 1234\n");
    doctor_examine(&d);
    doctor_print(&d, &plain, 80, false);
    doctor_print(&d, &coloured, 80, true);
    ck_assert(!plain.failed && !strchr(plain.data, '\033'));
    ck_assert(strstr(coloured.data, "\033[33mwarn\033[0m") != NULL);
    check_width(&plain, 80);
    d.n_commands = 0; /* a line to type is not wrapped */
    doctor_print(&d, &narrow, 58, false);
    check_width(&narrow, 58);
    ck_assert(strstr(narrow.data, "\nwarn  other load: 7.0 programs") != NULL);
    strbuf_release(&narrow);
    ck_assert(strstr(plain.data, "0 bad, 1 warning. Most") != NULL);
    strbuf_release(&plain);
    strbuf_release(&coloured);
}
END_TEST

/* Any bytes in any file. */
START_TEST(garbage_is_survived)
{
    static const char *const files[] = {"/proc/cpuinfo",
                                        "/proc/stat",
                                        "/proc/meminfo",
                                        "/proc/loadavg",
                                        "/proc/self/status",
                                        "/proc/self/cgroup",
                                        "/proc/self/mountinfo",
                                        "/proc/sys/kernel/numa_balancing",
                                        "/sys/devices/system/cpu/online",
                                        "/sys/devices/system/node/online",
                                        "/sys/devices/system/node/node0/meminfo",
                                        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                                        "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
                                        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
                                        "/sys/kernel/mm/transparent_hugepage/enabled",
                                        "/sys/fs/cgroup/cpu.max",
                                        "/sys/fs/cgroup/memory.max",
                                        "/sys/class/drm/renderD128/device/vendor",
                                        "/sys/firmware/dmi/tables/DMI",
                                        "/dev/dri/renderD128",
                                        "/etc/OpenCL/vendors/a.icd"};
    static const char *const texts[] = {
        "0-99999999,5", "\033[31m\033]0;x\a",     "max max",
        "-1 -1",        "99999999999999999999 1", "0::/../../..\n",
        "MemTotal:",    "1e308 1e-308",           "Node 0 MemTotal: x MemFree:"};
    unsigned seed = 1;

    for (int round = 0; round < 60; round++) {
        machine("garbage");
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            char bytes[40000];
            size_t n;

            seed = seed * 1103515245 + 12345;
            n = (seed >> 8) % (round % 3 ? 300 : sizeof bytes);
            for (size_t k = 0; k < n; k++) {
                seed = seed * 1103515245 + 12345;
                bytes[k] = (char)(seed >> 16);
            }
            if (seed >> 30 == 0)
                put(files[i], texts[(seed >> 10) % (sizeof texts / sizeof *texts)]);
            else
                put_bytes(files[i], bytes, n);
        }
        doctor_examine(&d);
        for (int i = 0; i < d.n; i++) {
            const struct doctor_finding *f = &d.findings[i];

            ck_assert(utf8_valid(f->found, strlen(f->found)));
            ck_assert(utf8_valid(f->remedy, strlen(f->remedy)));
            ck_assert(!strpbrk(f->found, "\033\n\a") && !strpbrk(f->remedy, "\033\n\a"));
        }
        ck_assert_int_eq(d.n_commands, DOCTOR_COMMANDS);
        json_t *json = doctor_json(&d);
        char *text = json ? json_dumps(json, 0) : NULL;

        ck_assert(text != NULL);
        ck_assert_int_eq((int)json_array_size(json_object_get(json, "findings")), d.n);
        free(text);
        json_decref(json);
    }
}
END_TEST

/* The whole of it on this machine. */
START_TEST(this_machine_is_judged)
{
    static struct options o;
    struct doctor_asked *asked;

    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_msg(options_parse(&o, 3, (char *[]){"moetop", "-m", "/no/such.gguf"}, &e) == 0, "%s",
                  e.text);
    memset(&d, 0, sizeof d);
    ck_assert_msg(doctor_ask(&asked, &o, &d.place, &e) == 0, "%s", e.text);
    doctor_measure(asked, 0, &d.measures, NULL, NULL);
    doctor_asked_free(asked);
    options_release(&o);
    ck_assert_int_ge(d.measures.threads, 1);
    ck_assert(d.measures.memory_rate > 0 && d.measures.n_models >= 2);
    expect("model", DOCTOR_BAD, "/no/such.gguf", "-m FILE");
    expect_nth("model", 1, DOCTOR_OK, "fits", NULL);
    ck_assert(nth("memory", 0) && nth("processor", 0) && nth("OpenCL", 0));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("doctor");
    TCase *t = tcase_create("doctor");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_good_machine_has_nothing_to_mend);
    tcase_add_test(t, energy_that_cannot_be_read_has_a_remedy);
    tcase_add_test(t, modules_that_are_not_listed_are_not_guessed);
    tcase_add_test(t, no_table_of_the_firmware_is_trusted);
    tcase_add_test(t, a_laptop_saves_power);
    tcase_add_test(t, a_container_has_limits);
    tcase_add_test(t, a_busy_machine_is_told);
    tcase_add_test(t, gpus_and_their_drivers);
    tcase_add_test(t, no_driver_at_all);
    tcase_add_test(t, devices_are_judged_by_their_tests);
    tcase_add_test(t, nodes_of_memory);
    tcase_add_test(t, memory_pages_swap_and_cache);
    tcase_add_test(t, measured_choices_under_a_limit);
    tcase_add_test(t, terminals);
    tcase_add_test(t, models_that_fit_and_do_not);
    tcase_add_test(t, the_page_is_narrow);
    tcase_add_test(t, garbage_is_survived);
    tcase_add_test(t, this_machine_is_judged);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
