/* One device of the engine and its measured properties. Thread: the engine's. Owner: the engine, an
 * array of DEVICE_MAX. */
#ifndef ENGINE_RUN_DEVICE_SLOT_H
#define ENGINE_RUN_DEVICE_SLOT_H

#include "engine/device/device.h"
#include "engine/run/report/device_health.h"
#include "engine/run/state/job_cost.h"
#include "engine/run/state/slow_device.h"

#include <stdbool.h>
#include <stdint.h>

/* An opened device and its measured properties. Slot 0 is the CPU. */
struct device_slot {
    const struct device_ops *ops;
    struct device *device;
    struct device_info info;
    bool in_place; /* it uses the CPU's rows (device_ops.state_in_place) */
    int failures;
    bool lost; /* failed twice, or computed wrongly: gets no more jobs */
    struct device_health health;
    struct slow_device pace;
    /* the newest pass found it slow or without memory: blocks go back at the safe point, twice as
     * many as the last time */
    bool strained;
    int strains;
    /* Cost of single jobs in passes of one row, for planners: blocks computed, and in how many
     * jobs. */
    struct job_cost attention, expert, head;
    /* Likewise of prompts: rows, and rows of experts, that were computed in groups. On devices the
     * time that their kernels ran, by their own clock. */
    struct job_cost prompt_attention, prompt_expert;
    /* ns that the planners have for these, where no job has told yet; 0: unknown */
    double planned_attention, planned_expert;
    /* What such a job of a device took beyond its kernels: launches, copies and the wait, of jobs
     * that the host waited for at once; and the part of it in which the host launched. */
    struct job_cost handoff, launch;
};

#endif
