/* The doctor's checks of the processor: kernels, clock, what this process may use of it, and who
 * else uses it. */
#include "app/doctor/internal.h"

#include "app/common/energy.h"
#include "app/common/system_sample.h"

#include "engine/base/control_group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CPUS_MAX 4096
#define HOT 95 /* degrees C; processors throttle at 95 to 105 */

static int cpus_online(const struct doctor *d)
{
    char text[DOCTOR_TEXT];
    int n = doctor_text(d, "/sys/devices/system/cpu/online", text) == DOCTOR_READ
                ? doctor_list_count(text, CPUS_MAX)
                : 0;

    if (n == 0 && doctor_text(d, "/proc/stat", text) == DOCTOR_READ)
        for (const char *p = text; (p = strstr(p, "\ncpu")); p++)
            n++;
    return n;
}

void doctor_check_processor(struct doctor *d)
{
    char text[DOCTOR_TEXT];
    bool guest = doctor_text(d, "/proc/cpuinfo", text) == DOCTOR_READ &&
                 strstr(text, " hypervisor");
    const char *kernels = d->measures.kernels;
    struct doctor_finding *f;

    if (!kernels[0])
        return;
    if (strcmp(kernels, "scalar")) {
        doctor_find(d, DOCTOR_OK, "processor", "%s kernels, %d thread%s%s", kernels,
                    d->measures.threads, d->measures.threads == 1 ? "" : "s",
                    guest ? ", in a virtual machine" : "");
        return;
    }
    f = doctor_find(d, DOCTOR_WARN, "processor",
                    "only the scalar kernels run here: several times "
                    "slower than AVX2");
    doctor_remedy(f, "",
                  guest ? "let the virtual machine see the host's processor (QEMU: -cpu host)"
                        : "use a processor with AVX2 (x86-64, from 2013 on)");
}

/* ---- clock ---- */

struct policy {
    char governor[32], preference[32], driver[32];
};

static void first_word(const struct doctor *d, const char *path, char *out, size_t size)
{
    char text[DOCTOR_TEXT];

    doctor_text(d, path, text);
    snprintf(out, size, "%.*s", (int)strcspn(text, " \t\n"), text);
}

static void policy_of(const struct doctor *d, int cpu, struct policy *p)
{
    static const char *const base = "/sys/devices/system/cpu/cpu%d/cpufreq/%s";
    char path[120];

    snprintf(path, sizeof path, base, cpu, "scaling_governor");
    first_word(d, path, p->governor, sizeof p->governor);
    snprintf(path, sizeof path, base, cpu, "energy_performance_preference");
    first_word(d, path, p->preference, sizeof p->preference);
    snprintf(path, sizeof path, base, cpu, "scaling_driver");
    first_word(d, path, p->driver, sizeof p->driver);
}

/* With these drivers the processor chooses the clock itself, by the preference; "powersave" is
 * their usual governor (Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst). */
static bool chooses_itself(const struct policy *p)
{
    return strcmp(p->driver, "intel_pstate") == 0 || strcmp(p->driver, "amd-pstate-epp") == 0;
}

static bool saves_power(const struct policy *p)
{
    if (strcmp(p->governor, "performance") == 0)
        return false;
    if (chooses_itself(p))
        return strcmp(p->preference, "power") == 0 || strcmp(p->preference, "balance_power") == 0;
    return strcmp(p->governor, "powersave") == 0;
}

static void check_governor(struct doctor *d)
{
    struct policy first, p;
    struct doctor_finding *f;
    int n = cpus_online(d), saving = 0;

    policy_of(d, 0, &first);
    if (!first.governor[0]) {
        doctor_find(d, DOCTOR_OK, "governor", "none here: the clock is not this system's to set");
        return;
    }
    for (int i = 0; i < n; i++) {
        policy_of(d, i, &p);
        saving += p.governor[0] && saves_power(&p);
    }
    if (!saving) {
        doctor_find(d, DOCTOR_OK, "governor", "%s%s%s%s", first.governor,
                    first.preference[0] ? " (" : "", first.preference,
                    first.preference[0] ? ")" : "");
        return;
    }
    f = doctor_find(d, DOCTOR_WARN, "governor", "%s%s%s saves power on %d of %d CPUs",
                    first.governor, first.preference[0] ? ", " : "", first.preference, saving, n);
    doctor_remedy(
        f, "sudo cpupower frequency-set -g performance",
        "sudo cpupower frequency-set -g performance, or powerprofilesctl set performance");
}

static void check_cap(struct doctor *d)
{
    int64_t most = doctor_number(d, "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
            cap = doctor_number(d, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq");
    struct doctor_finding *f;

    if (most > 0 && cap > 0 && cap < most / 10 * 9) {
        f = doctor_find(d, DOCTOR_WARN, "clock", "limited to %lld of %lld MHz",
                        (long long)cap / 1000, (long long)most / 1000);
        doctor_remedy(f, "sudo cpupower frequency-set -u 100GHz",
                      "sudo cpupower frequency-set -u 100GHz lifts the limit");
    }
    if (doctor_number(d, "/sys/devices/system/cpu/intel_pstate/no_turbo") == 1 ||
        doctor_number(d, "/sys/devices/system/cpu/cpufreq/boost") == 0) {
        f = doctor_find(d, DOCTOR_NOTE, "clock", "turbo is switched off");
        doctor_remedy(f, "",
                      "write 0 into /sys/devices/system/cpu/intel_pstate/no_turbo, or 1 into "
                      "/sys/devices/system/cpu/cpufreq/boost");
    }
}

static void check_heat(struct doctor *d)
{
    struct system *s = system_new(d->place.root);
    struct doctor_finding *f;
    struct system_sample now;

    if (!s)
        return;
    system_read(s, &now);
    system_free(s);
    if (!isnan(now.temperature) && now.temperature >= HOT && now.temperature < 200) {
        f = doctor_find(d, DOCTOR_WARN, "temperature", "the processor has %.0f °C and slows down",
                        (double)now.temperature);
        doctor_remedy(f, "", "clean the fans, or use fewer threads (-t)");
    }
}

static void check_battery(struct doctor *d)
{
    static const char *const mains[] = {"AC", "AC0", "ACAD", "ADP0", "ADP1"};
    struct doctor_finding *f;

    for (size_t i = 0; i < sizeof mains / sizeof *mains; i++) {
        char path[80];

        snprintf(path, sizeof path, "/sys/class/power_supply/%s/online", mains[i]);
        if (doctor_number(d, path) != 0)
            continue;
        f = doctor_find(d, DOCTOR_NOTE, "power", "runs on its battery, which limits the clock");
        doctor_remedy(f, "", "plug it in");
        return;
    }
}

void doctor_check_clock(struct doctor *d)
{
    check_governor(d);
    check_cap(d);
    check_heat(d);
    check_battery(d);
}

/* ---- what this process may use ---- */

/* The list behind "LABEL:" in /proc/self/status. */
static int status_list(const struct doctor *d, const char *label)
{
    char text[DOCTOR_TEXT], list[1024];
    const char *p = doctor_text(d, "/proc/self/status", text) == DOCTOR_READ ? strstr(text, label)
                                                                             : NULL;

    if (!p)
        return 0;
    p += strlen(label);
    p += strspn(p, " \t");
    snprintf(list, sizeof list, "%.*s", (int)strcspn(p, "\n"), p);
    return doctor_list_count(list, CPUS_MAX);
}

void doctor_check_limits(struct doctor *d)
{
    int online = cpus_online(d), mine = status_list(d, "Cpus_allowed_list:");
    double quota = cpu_group_quota(d->place.root);
    struct doctor_finding *f;

    if (quota > 0 && (online == 0 || quota < online)) {
        f = doctor_find(d, quota < 1 ? DOCTOR_WARN : DOCTOR_NOTE, "processor limit",
                        "the control group gives this process %.4g of %d CPUs", quota, online);
        doctor_remedy(f, "",
                      "raise it where the container is started (--cpus), or CPUQuota= of the "
                      "unit");
    }
    if (mine > 0 && mine < online) {
        f = doctor_find(d, DOCTOR_NOTE, "processor limit", "this process may use %d of %d CPUs",
                        mine, online);
        doctor_remedy(f, "", "start it without taskset or cpuset, if it should have all");
    }
}

void doctor_check_load(struct doctor *d)
{
    char text[DOCTOR_TEXT], *end;
    int n = cpus_online(d);
    struct doctor_finding *f;
    double load;

    if (doctor_text(d, "/proc/loadavg", text) != DOCTOR_READ)
        return;
    load = strtod(text, &end);
    if (end == text || !(load >= 0 && load < 1e6) || n < 1)
        return;
    if (load < 0.5 * n) {
        doctor_find(d, DOCTOR_OK, "other load", "%.1f of %d CPUs on average", load, n);
        return;
    }
    f = doctor_find(d, load < n ? DOCTOR_NOTE : DOCTOR_WARN, "other load",
                    "%.1f programs want %d CPU%s: every figure here is too low", load, n,
                    n == 1 ? "" : "s");
    doctor_remedy(f, "", "stop the other programs, or measure when they are done (top)");
}

/* Whether the machine tells what an answer costs, which --stats, --bench and --compare print. */
void doctor_check_energy(struct doctor *d)
{
    static const char cut[] = ": sudo chmod ";
    struct energy *g = energy_new(d->place.root);
    struct energy_reading now;
    const char *why = g ? energy_why(g) : "", *remedy = strstr(why, cut);
    struct doctor_finding *f;

    if (!g)
        return;
    energy_read(g, &now);
    if (!*why) {
        doctor_find(d, DOCTOR_OK, "energy", "the processor's counters are readable%s",
                    isnan(now.joules[ENERGY_GPU]) ? "" : ", and a GPU's");
    } else {
        f = doctor_find(d, DOCTOR_NOTE, "energy", "N/A: %.*s%s",
                        remedy ? (int)(remedy - why) : (int)strlen(why), why,
                        isnan(now.joules[ENERGY_GPU]) ? "" : "; a GPU's are readable");
        if (remedy)
            doctor_remedy(f, remedy + 2, "let everybody read them, until the next start:");
    }
    energy_free(g);
}
