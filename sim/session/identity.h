/* identity.h: names and numbers of the cards, which CUDA and NVML both report. */
#pragma once

#define IDENTITY_NAME    "Simulated H200"
#define IDENTITY_DRIVER  "580.0.sim"
#define IDENTITY_CUDA    13000
#define IDENTITY_PCI_BUS 0x10 /* PCI bus of the first card; the other cards follow */
