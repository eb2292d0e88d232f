"""The demo's account: checks the topics, the group and Spark against what was produced."""
