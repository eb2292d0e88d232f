"""The demo's account: what was produced against what the topics, the group and Spark say."""
