/* Shared by the checks of the doctor. */
#ifndef APP_DOCTOR_INTERNAL_H
#define APP_DOCTOR_INTERNAL_H

#include "app/doctor/doctor.h"

#define DOCTOR_TEXT 32768

/* Adds a finding; NULL where there are too many. Control characters become visible. */
struct doctor_finding *doctor_find(struct doctor *d, enum doctor_level level, const char *subject,
                                   const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The remedy of a finding, and its command; f NULL: nothing. */
void doctor_remedy(struct doctor_finding *f, const char *command, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum doctor_read { DOCTOR_READ, DOCTOR_ABSENT, DOCTOR_FORBIDDEN };
/* The first DOCTOR_TEXT - 1 bytes of the file below the root, up to a zero byte, without blanks at
 * the end. text is "" where it could not be read. */
enum doctor_read doctor_text(const struct doctor *d, const char *path, char text[DOCTOR_TEXT]);
/* Its first number; -1: it cannot be read, or begins with none. */
int64_t doctor_number(const struct doctor *d, const char *path);
/* The numbers of a list such as "0-3,8": how many, at most `most`; 0 for what is no list. */
int doctor_list_count(const char *text, int most);
/* "12.3 GB/s" */
const char *doctor_rate(double bytes, char out[24]);

/* The checks, in the order of the page. */
void doctor_check_processor(struct doctor *d);
void doctor_check_clock(struct doctor *d);
void doctor_check_limits(struct doctor *d);
void doctor_check_load(struct doctor *d);
void doctor_check_energy(struct doctor *d);
void doctor_check_memory_speed(struct doctor *d);
void doctor_check_huge_pages(struct doctor *d);
void doctor_check_nodes(struct doctor *d);
void doctor_check_memory(struct doctor *d);
void doctor_check_swap(struct doctor *d);
void doctor_check_cache(struct doctor *d);
void doctor_check_tuning(struct doctor *d);
void doctor_check_disk(struct doctor *d);
void doctor_check_gpus(struct doctor *d);
void doctor_check_drivers(struct doctor *d);
void doctor_check_devices(struct doctor *d);
void doctor_check_terminal(struct doctor *d);
void doctor_check_models(struct doctor *d);

/* What the modules' table of SMBIOS says (dmi.c). */
struct dmi_memory {
    int modules;  /* with memory in them */
    int channels; /* named by their locators; 0: not named */
    int speed;    /* configured, MT/s, the least of all; 0: not stated */
    int width;    /* data bits of a module; 0: not stated */
    char type[8]; /* "DDR5"; "": another */
};
/* table: the bytes of /sys/firmware/dmi/tables/DMI, of any content. */
void dmi_memory_read(const uint8_t *table, size_t n, struct dmi_memory *out);

/* The commands most worth typing, from findings and measures. */
void doctor_choose_commands(struct doctor *d);

#endif
