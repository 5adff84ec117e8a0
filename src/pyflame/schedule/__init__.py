"""Graph + implementation table -> Plan. Pure: tested without a device."""
