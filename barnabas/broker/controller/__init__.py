"""The controller: decides on topics, leaders and ISRs for the whole cluster."""
