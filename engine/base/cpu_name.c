/* See cpu_name.h. Numbers of parts: the technical reference manuals' MIDR_EL1, as Linux' cputype.h
 * has them. */
#include "engine/base/cpu_name.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINDS 4 /* of cores in one processor */

static const struct {
    unsigned implementer, part;
    const char *name;
} parts[] = {
    {0x41, 0xd03, "Cortex-A53"},     {0x41, 0xd04, "Cortex-A35"},      {0x41, 0xd05, "Cortex-A55"},
    {0x41, 0xd07, "Cortex-A57"},     {0x41, 0xd08, "Cortex-A72"},      {0x41, 0xd09, "Cortex-A73"},
    {0x41, 0xd0a, "Cortex-A75"},     {0x41, 0xd0b, "Cortex-A76"},      {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd0d, "Cortex-A77"},     {0x41, 0xd40, "Neoverse-V1"},     {0x41, 0xd41, "Cortex-A78"},
    {0x41, 0xd42, "Cortex-A78AE"},   {0x41, 0xd44, "Cortex-X1"},       {0x41, 0xd46, "Cortex-A510"},
    {0x41, 0xd47, "Cortex-A710"},    {0x41, 0xd48, "Cortex-X2"},       {0x41, 0xd49, "Neoverse-N2"},
    {0x41, 0xd4a, "Neoverse-E1"},    {0x41, 0xd4b, "Cortex-A78C"},     {0x41, 0xd4c, "Cortex-X1C"},
    {0x41, 0xd4d, "Cortex-A715"},    {0x41, 0xd4e, "Cortex-X3"},       {0x41, 0xd4f, "Neoverse-V2"},
    {0x41, 0xd80, "Cortex-A520"},    {0x41, 0xd81, "Cortex-A720"},     {0x41, 0xd82, "Cortex-X4"},
    {0x41, 0xd84, "Neoverse-V3"},    {0x41, 0xd85, "Cortex-X925"},     {0x41, 0xd87, "Cortex-A725"},
    {0x41, 0xd8e, "Neoverse-N3"},    {0x43, 0x0af, "ThunderX2"},       {0x46, 0x001, "A64FX"},
    {0x48, 0xd01, "Kunpeng 920"},    {0x4e, 0x004, "Carmel"},          {0x51, 0x001, "Oryon"},
    {0x61, 0x022, "Apple Icestorm"}, {0x61, 0x023, "Apple Firestorm"}, {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1A"},
};

/* The number behind LABEL and a colon; -1: the text begins otherwise. */
static long number_of(const char *line, const char *label)
{
    size_t n = strlen(label);

    if (strncmp(line, label, n))
        return -1;
    line += n + strspn(line + n, " \t");
    return *line == ':' ? strtol(line + 1, NULL, 0) : -1;
}

static void add_kind(long kinds[KINDS], int *n, long kind)
{
    for (int i = 0; i < *n; i++)
        if (kinds[i] == kind)
            return;
    if (*n < KINDS)
        kinds[(*n)++] = kind;
}

static void append(char *out, size_t size, const char *text)
{
    size_t n = strlen(out);

    if (n < size)
        snprintf(out + n, size - n, "%s", text);
}

static void append_kind(char *out, size_t size, long kind)
{
    char number[48];

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (kind == (long)(parts[i].implementer << 16 | parts[i].part)) {
            append(out, size, parts[i].name);
            return;
        }
    snprintf(number, sizeof number, "Arm part 0x%lx of 0x%lx", kind & 0xffff, kind >> 16);
    append(out, size, number);
}

void cpu_name_from(const char *cpuinfo, const char *board, char *out, size_t size)
{
    const char *name = strstr(cpuinfo, "model name"), *colon = name ? strchr(name, ':') : NULL;
    long kinds[KINDS], implementer = -1;
    int n = 0;

    if (colon) {
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        return;
    }
    for (const char *p = cpuinfo; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        long by = number_of(p, "CPU implementer"), part = number_of(p, "CPU part");

        if (by >= 0 && by <= 0xff)
            implementer = by;
        if (part >= 0 && part <= 0xfff && implementer >= 0)
            add_kind(kinds, &n, implementer << 16 | part);
    }
    if (n == 0 && !*board)
        return;
    snprintf(out, size, "%s", board);
    append(out, size, *board && n ? ", " : "");
    for (int i = n - 1; i >= 0; i--) {
        append_kind(out, size, kinds[i]);
        append(out, size, i ? " + " : "");
    }
}
