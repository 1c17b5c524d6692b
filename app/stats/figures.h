/* What is derived from the counts of a run, each figure in one place. Pure. */
#ifndef APP_STATS_FIGURES_H
#define APP_STATS_FIGURES_H

#include "app/stats/run_stats.h"

/* share of the threads' time without a CPU, or of the CPUs used by others */
#define STATS_STARVED 0.15

double stats_known(uint64_t v); /* NAN: the system does not tell it */
/* Growth of a counter since the start; NAN if unknown. */
double stats_since(uint64_t first, uint64_t last);
double stats_share(uint64_t part, uint64_t of); /* NAN of nothing */
/* CPUs' worth used on average during turns; between the two samples if there was no turn. */
double stats_cores_used(const struct stats *s);
double stats_others_used(const struct stats *s); /* by other processes, likewise */
/* This process's share of the machine's memory, 0 .. 1. */
double stats_memory_share(const struct stats *s);

/* How evenly a layer used its experts: 1 all equally, 0 only one; NAN if unused. */
double stats_evenness(const uint32_t *counts, int n);
/* The expert with the most of a layer's tokens, and its share of them. */
int stats_most_used(const uint32_t *counts, int n, double *share);

/* Share of the computing time spent waiting for the disk. */
double stats_disk_share(const struct stats *s);
double stats_hit_rate(const struct expert_cache_stats *p); /* NAN: nothing was asked for */

/* Share of the turns' time that this program's threads were ready to run and had no CPU; 0 if the
 * kernel does not report it, or if a driver's threads may have waited for ours. */
double stats_waited(const struct stats *s);
/* Whether the threads lacked a processor: by the kernel's figures, or because others used so much
 * of it that the threads cannot all have run. Other limits of the speed cannot then be determined.
 */
bool stats_starved(const struct stats *s);

#endif
