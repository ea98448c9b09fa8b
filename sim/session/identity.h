/* identity.h: what the cards call themselves, to CUDA and to NVML alike. */
#pragma once

#define IDENTITY_NAME    "Simulated H200"
#define IDENTITY_DRIVER  "580.0.sim"
#define IDENTITY_CUDA    13000
#define IDENTITY_PCI_BUS 0x10 /* of the first card; the next ones follow */
